package agents

import "log/slog"

// Secret is a password or key. It prints as [secret] everywhere; only Reveal
// gives the bytes, exactly as they were configured.
type Secret struct {
	// A pointer, because fmt prints the fields of a struct's unexported field without asking
	// its methods: then it shows an address.
	value *string
}

// NewSecret wraps a value.
func NewSecret(v string) Secret { return Secret{value: &v} }

// Reveal returns the secret, for the call that sends it to the device.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether no secret was configured.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

const redacted = "[secret]"

func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
