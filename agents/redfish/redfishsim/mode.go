package redfishsim

import "time"

// Mode is how a BMC behaves in general. The zero value is a well-behaved one: it cuts
// the power at once and answers 204.
type Mode struct {
	// ReadOnly gives the account a role that may not reset.
	ReadOnly bool
	// MustChangePassword lets every authenticated request end in 403.
	MustChangePassword bool
	// NoBasic refuses basic authentication, so that a session is needed.
	NoBasic bool
	// SessionLimit is the number of session slots; 0 = 8.
	SessionLimit int
	// SessionTimeout ends a session that was not used for so long; 0 = 30 min.
	SessionTimeout time.Duration
	// Location says how the answer to a login names the session.
	Location Location

	// Answer is what a reset that is obeyed gets; 0 = 204. 202 comes with a task.
	Answer int
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
	// Mute accepts TCP connections and never says a word on them.
	Mute bool
}

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
