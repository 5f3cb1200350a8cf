// The agent against a Redfish server that others wrote. A module of its own, because that server's
// module asks for far more than the few packages that it is made of.
module github.com/hamgr/hamgr/agents/redfish/independent

go 1.26.3

replace github.com/hamgr/hamgr => ../../..

// What is tested is the product, so with its version of gofish, and not with that of the server's module.
replace github.com/stmcginnis/gofish => github.com/stmcginnis/gofish v0.23.0

require (
	github.com/go-logr/logr v1.4.4
	github.com/hamgr/hamgr v0.0.0-00010101000000-000000000000
	github.com/ironcore-dev/metal-operator v0.7.0
	go.uber.org/goleak v1.3.0
)

require github.com/stmcginnis/gofish v0.24.0 // indirect
