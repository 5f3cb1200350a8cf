package stonith

import "time"

// opinionTime bounds the second opinion of all other devices together.
const opinionTime = time.Second
