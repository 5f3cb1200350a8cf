package coordinator

import "time"

// tick gives how many milliseconds of this term have passed since the last command, for the
// clock in the state, and begins to count anew. If the command is lost its time is lost with it:
// the clock may go slow, which only makes windows longer, and never fast.
func (c *Coordinator) tick() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.leading || c.ticked.IsZero() {
		return 0
	}
	passed := now.Sub(c.ticked).Milliseconds()
	c.ticked = c.ticked.Add(time.Duration(passed) * time.Millisecond)
	return passed
}

// sinceTick is how far the present is beyond the clock in the state. Called with mu held.
func (c *Coordinator) sinceTick() int64 {
	if !c.leading || c.ticked.IsZero() {
		return 0
	}
	return time.Since(c.ticked).Milliseconds()
}
