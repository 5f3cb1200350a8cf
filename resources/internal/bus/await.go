package bus

import (
	"context"
	"time"
)

// LookInterval is how often a job is looked after whose end nobody tells.
const LookInterval = time.Second

// Asked is what Await needs of a connection.
type Asked interface {
	Unit(ctx context.Context, name string) (Properties, error)
	Lost() <-chan struct{}
}

// Await gives the result of a job. A job whose end was not told, although it has ended, has the result "".
func Await(ctx context.Context, m Asked, unit string, job uint32, result <-chan string) (string, error) {
	ticker := time.NewTicker(LookInterval)
	defer ticker.Stop()
	for {
		select {
		case word := <-result:
			return word, nil
		case <-m.Lost():
			return "", ErrLost
		case <-ctx.Done():
			return "", ctx.Err()
		case <-ticker.C:
		}
		u, err := m.Unit(ctx, unit)
		if err != nil {
			return "", err
		}
		if u.Job() == job {
			continue
		}
		// What systemd told before it gave this answer has been read before it.
		select {
		case word := <-result:
			return word, nil
		default:
			return "", nil
		}
	}
}
