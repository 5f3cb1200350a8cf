package redfishsim

import "time"

// Mode is how a BMC behaves in general. The zero value is a well-behaved one: it cuts
// the power at once and answers 204.
type Mode struct {
	// Role is the account's; empty = RoleOperator. With Privileges or OemPrivileges it is a
	// role of the BMC's own, which has these.
	Role                      string
	Privileges, OemPrivileges []string
	// HideAccounts refuses to show the AccountService, as many BMCs do to all but administrators.
	HideAccounts bool
	// HideRoles leaves the roles out of the Session document, as firmware before 2022 does.
	HideRoles bool
	// MustChangePassword lets every authenticated request end in 403.
	MustChangePassword bool
	// NoBasic refuses basic authentication, so that a session is needed.
	NoBasic bool
	// LoginByBasic wants basic authentication for the login itself, as Cray's emulator does.
	LoginByBasic bool
	// SessionLimit is the number of session slots; 0 = 8.
	SessionLimit int
	// LimitAnswer is what a login past the limit gets; 0 = 503, some answer 400.
	LimitAnswer int
	// SessionTimeout ends a session that was not used for so long; 0 = 30 min.
	SessionTimeout time.Duration
	// Location says how the answer to a login names the session, and that to a reset the task.
	Location Location

	// Answer is what a reset that is obeyed gets; 0 = 204. 202 comes with a task.
	Answer int
	// Stale shows the state before a reset for so long after it was carried out.
	Stale time.Duration
	// Lie accepts resets and does nothing.
	Lie bool
	// Hesitate shows On for so long after an accepted off; then comes PoweringOff.
	Hesitate time.Duration
	// PoweringOff shows this state for so long before the power is cut.
	PoweringOff time.Duration
	// EarlyOff shows Off for so long while the machine still runs. No client can find
	// that out by asking the BMC.
	EarlyOff time.Duration
	// PoweringOn shows this state for so long after a power-on.
	PoweringOn time.Duration
	// PowerState is shown instead of the real one, as JSON (`null`, `"Paused"`, `0`).
	PowerState string
	// NoPowerState leaves the property out.
	NoPowerState bool
	// OffWhenOff and OnWhenOn are the answers to a reset without effect; 0 = as ever.
	OffWhenOff, OnWhenOn int
	// ETag says what is done with If-Match.
	ETag ETag

	// Shuffle changes the order of the members with each answer.
	Shuffle bool
	// PageSize splits the list of members in pages; 0 = one page.
	PageSize int
	// CloseEach closes the connection after each answer.
	CloseEach bool
	// HTTP10 answers in HTTP/1.0, without a length, and closes.
	HTTP10 bool
	// Clock is how far the BMC's clock is off, as its Date header shows.
	Clock time.Duration
	// Mute accepts TCP connections and never says a word on them.
	Mute bool
}

// The roles that DSP0266 prescribes ("Roles").
const (
	RoleAdministrator = "Administrator"
	RoleOperator      = "Operator"
	RoleReadOnly      = "ReadOnly"
)

// Location is how a login's answer names the session.
type Location int

// The ways of naming a session.
const (
	Relative  Location = iota // Location: /redfish/v1/...
	Absolute                  // Location: https://other-name/redfish/v1/...
	BodyOnly                  // no Location, @odata.id in the body
	NoneAtAll                 // neither
)

// ETag is what a BMC does with If-Match on a reset.
type ETag int

// The ways of handling If-Match.
const (
	ETagIgnored  ETag = iota // and none is sent
	ETagChecked              // 412 if it is sent and does not match
	ETagRequired             // 428 if it is missing
	ETagMissing              // 412 if it is missing
)
