package api

// WatchdogStatus is a node's hardware watchdog, as that node says. What is asked of a node that does not answer is what it
// told last, and has no more than Device, Counts, Why, ExpiryMS and Note.
type WatchdogStatus struct {
	Device   string `json:"device"` // path, or "fake"
	Identity string `json:"identity,omitempty"`
	Armed    bool   `json:"armed"`
	// TimeoutMS is when it resets the host after it was last fed, as the driver made it, and FedMS how long ago that
	// was; absent unless it is armed.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	FedMS     int64 `json:"fed_ms,omitempty"`
	// LastBoot is what the driver says of the host's last boot.
	LastBoot []string `json:"last_boot,omitempty"`
	// Test is the verdict on its last test: passed, failed, unclear, void, begun or untested.
	Test    string `json:"test,omitempty"`
	TestWhy string `json:"test_why,omitempty"`
	// Counts says that others can count on it now: after ExpiryMS of silence the node is reset, or holds nothing.
	Counts   bool   `json:"counts"`
	Why      string `json:"why,omitempty"` // it does not count
	ExpiryMS int64  `json:"expiry_ms,omitempty"`
	// Trouble is why it guards nothing although it should; Starved why it is not fed, and resets the host.
	Trouble string `json:"trouble,omitempty"`
	Starved string `json:"starved,omitempty"`
	Note    string `json:"note,omitempty"` // how far the rest is to be believed
}
