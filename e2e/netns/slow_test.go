package netns

import (
	"os"
	"time"
)

// slowness is by how much a bound of the product's is stretched on a machine that is not the one it is promised for. The
// promise is about a machine with time to spare; this one runs many clusters and a race detector at once.
var slowness = map[bool]time.Duration{true: 1, false: 3}[os.Getenv("HAMGR_STRICT") != ""]
