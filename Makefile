# make          build bin/hamgr
# make test     everything that the tests need, then all tests under the race detector
# make check    what CI runs: formatting, module files, vet, linter, tests, fuzzing, the demo, the systemd unit, whole hosts
GO          ?= go
FUZZTIME    ?= 50000x
FAILOVERS   ?= 20
SCENARIOS   ?= freeze crash coordinator stale move
TORTURE     ?= 10m
MUTANTS     ?= 2m
# Of the simulations, what takes half of the time.
DRAWN       := ^Test(Random(Schedules|Outages|Pairs|Resource)|NoHealthyNodeIsShot)
# The real clusters in network namespaces that are part of every test; make netns has all of them, eight minutes.
NETNS       := ^Test(B14|B15Slander|B15WithoutKey|B16|B17|B21|B22Pause|B25|B31|ConfigNodes|Disk|HistoryIsRecorded|Links|LinkIsNamed|Pauses|QuorumForce|TwoNodesCut|TwoNodesOneDies|WallClockSteps)
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2

export CGO_ENABLED = 0

.PHONY: build test deps fmt tidy vet lint fuzz demo torture mutants bench netns systemd hosts check clean

build:
	$(GO) build -trimpath -o bin/hamgr ./cmd/hamgr

deps:
	@e2e/deps.sh

# The race detector is the only thing that needs cgo, and with it a C compiler. The long simulations of e2e/sim and
# cluster/membership run without it: after minutes of whole clusters in one process its own runtime crashes (SIGSEGV in
# the sanitizer's stack depot, Go 1.26.8); a failover of each kind runs under it. The clusters of real
# processes come last and alone: what they do in real time must not wait for a compiler. Those in network namespaces are
# many at once, and their daemons slower by ten with the detector: a few of them run under it.
test: deps
	CGO_ENABLED=1 $(GO) test -race -timeout 15m $$($(GO) list ./... | grep -v -e '/e2e' -e '/cluster/membership$$')
	@echo "$(GO) test ./cluster/membership ./e2e/sim"; \
	$(GO) test -timeout 15m -run '$(DRAWN)' ./e2e/sim & random=$$!; \
	status=0; $(GO) test -timeout 15m -p 1 -skip '$(DRAWN)' ./cluster/membership ./e2e/sim || status=1; \
	wait $$random || status=1; exit $$status
	CGO_ENABLED=1 $(GO) test -race -timeout 15m -run '^(TestLeaveIsNotDeath|TestRestartShowsNewMeta|TestStrangersAreRefused)$$' ./cluster/membership
	CGO_ENABLED=1 $(GO) test -race -timeout 15m -run '^(TestLoss|TestRestartOfDaemon|TestHungStop|TestFailedResource)$$' ./e2e/sim
	CGO_ENABLED=1 $(GO) test -race -timeout 15m -p 1 ./e2e/history ./e2e/fencing ./e2e
	$(GO) test -timeout 15m -run '$(NETNS)' ./e2e/netns
	CGO_ENABLED=1 $(GO) test -race -timeout 15m -run '^(TestTwoNodesOneDies|TestDiskFails)$$' ./e2e/netns
	cd agents/redfish/independent && CGO_ENABLED=1 $(GO) test -race -timeout 15m ./...

fmt:
	@test -z "$$(gofmt -l .)" || { gofmt -d .; echo "run: gofmt -w ."; exit 1; }

tidy:
	$(GO) mod tidy -diff
	cd agents/redfish/independent && $(GO) mod tidy -diff

vet:
	$(GO) vet ./...
	$(GO) vet -tags systemdhost ./resources/systemd ./resources/command ./e2e/hosts
	cd agents/redfish/independent && $(GO) vet ./...

lint:
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(STATICCHECK) -tags systemdhost ./resources/systemd ./resources/command ./e2e/hosts

# Each fuzz target for FUZZTIME: long enough to run the corpus and to notice a parser that falls over at once. A number
# of runs, not seconds: at the end of its time the Go fuzzer now and then fails with "context deadline exceeded" although
# nothing is wrong (golang/go#75804, fixed in Go 1.27). For hours of it: make fuzz FUZZTIME=20000000x
fuzz:
	@set -e; for file in $$(grep -rl '^func Fuzz' --include='*_test.go' .); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$file); do \
			echo "$$(dirname $$file) $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$(dirname $$file); \
		done; \
	done

demo: build
	@set -e; for s in $(SCENARIOS); do echo; echo "== hamgr demo --scenario $$s"; bin/hamgr demo --scenario $$s; done

# Whole clusters in virtual time, under all faults at once, for as long as TORTURE says: docs/torture.md. For a night: make torture TORTURE=8h
torture:
	$(GO) test -count 1 -timeout 0 -v -run '^TestTorture$$' ./e2e/sim -torture $(TORTURE)

# hamgr with one rule broken at a time, each tortured for MUTANTS at most, or until that is noticed. Twenty minutes.
mutants:
	$(GO) test -count 1 -timeout 0 -v -run '^TestMutants$$' ./e2e/mutants -mutants $(MUTANTS)

# Times of fencings beside ClusterLabs' agents on the same devices; then times of failovers and the cost of an idle
# daemon, against the bounds in docs/failover.md. About 12 minutes. The
# folder is in memory: TMPDIR=/some/disk make bench measures with a disk.
bench:
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 60m ./e2e/fencing
	$(GO) test -run '^$$' -bench Failover -benchtime $(FAILOVERS)x -timeout 60m ./e2e
	$(GO) test -run '^$$' -bench 'Pause|Idle' -benchtime 1x -timeout 60m ./e2e

# Root only: clusters of real processes in network namespaces, all of them.
netns: deps
	$(GO) test -count 1 -timeout 20m ./e2e/netns

# Root only: a Debian of its own with a real systemd, which runs hamgr.service.
systemd: build
	@e2e/deps.sh systemd
	e2e/systemd/test.sh bin/hamgr

# Root only: clusters of hosts with a real systemd, a shared disk, and a BMC and a PDU that cut their power. Three minutes.
hosts:
	@e2e/deps.sh systemd
	$(GO) test -tags systemdhost -count 1 -timeout 10m ./e2e/hosts

check: fmt tidy vet build lint test fuzz demo systemd hosts

clean:
	rm -rf bin
