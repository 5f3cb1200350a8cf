package agents

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestSecretShowsNowhere prints a secret in every way, in exported and unexported fields, and behind pointers.
func TestSecretShowsNowhere(t *testing.T) {
	s := NewSecret("hunter2")
	holder := struct {
		Public  Secret
		private Secret
		list    []Secret
		table   map[string]Secret
		pointer *Secret
	}{s, s, []Secret{s}, map[string]Secret{"password": s}, &s}
	var b strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		fmt.Fprintf(&b, verb+verb+verb, s, holder, &holder)
	}
	if err := json.NewEncoder(&b).Encode(holder); err != nil {
		t.Fatal(err)
	}
	slog.New(slog.NewTextHandler(&b, nil)).Info("opened", "secret", s, "holder", holder)
	if text := b.String(); strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", "hunter2")) {
		t.Error(text)
	}
	if s.Reveal() != "hunter2" || s.IsZero() || !(Secret{}).IsZero() || (Secret{}).Reveal() != "" {
		t.Error("the secret itself is lost")
	}
}
