package address

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hamgr/hamgr/resources"
)

// wantError checks an error: which sentinel it wraps (nil: none of them; errAny: unimportant) and its words.
func wantError(err, sentinel error, words string) error {
	for _, s := range []error{resources.ErrNode, resources.ErrSetup, resources.ErrElsewhere} {
		if sentinel != errAny && errors.Is(err, s) != (s == sentinel) {
			return fmt.Errorf("error %v: is %v: %v", err, s, errors.Is(err, s))
		}
	}
	if err == nil || !strings.Contains(err.Error(), words) {
		return fmt.Errorf("error %v lacks %q", err, words)
	}
	return nil
}

// errAny stands for any sentinel, or none.
var errAny = errors.New("any")
