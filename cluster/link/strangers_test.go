package link

import (
	"testing"
	"time"
)

// TestVisitsAreLoggedNowAndThen: a removed node asks several times a second, for as long as it runs.
func TestVisitsAreLoggedNowAndThen(t *testing.T) {
	var v visitors
	now, told := time.Now(), 0
	for at := time.Duration(0); at < time.Minute; at += visitEvery {
		if v.tell(now.Add(at)) {
			told++
		}
	}
	if told != int(time.Minute/reportPause) {
		t.Errorf("logged %d times in a minute", told)
	}
}
