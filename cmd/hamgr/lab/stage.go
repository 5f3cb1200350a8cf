package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/fake"
)

// The cast of lease, token and stonith: a group that alpha holds with token 33, and that beta is to get with 34.
const (
	group     = "db"
	oldHolder = "alpha"
	oldToken  = 33
	newHolder = "beta"
	newToken  = 34
)

// stage is two hosts and the storage between them. The world judges who may write; the storage keeps what was written.
type stage struct {
	world   *fake.World
	storage []write
	scene   *Scene
}

// write is one line on the storage.
type write struct {
	host  string
	token uint64
	line  string
}

func newStage(title string) *stage {
	return &stage{world: fake.NewWorld(), scene: &Scene{Title: title}}
}

// start starts the group's resource on a host; nothing here asks whether it may.
func (s *stage) start(ctx context.Context, host string, token uint64) (resources.Resource, error) {
	options := fake.Kind(s.world, host).Options().(*fake.Options)
	options.Disk = "shared"
	r, err := options.New(resources.Env{Group: group, Resource: "mount", Node: host, Boot: host + "-1", Token: token})
	if err != nil {
		return nil, err
	}
	if err := r.Start(ctx); err != nil {
		return nil, fmt.Errorf("start on %s: %w", host, err)
	}
	return r, nil
}

// begin is how all three stories begin: alpha holds the group, writes, and is paused just before its next write.
func (s *stage) begin(ctx context.Context, put func(host string, token uint64, line string) error) (resources.Resource, error) {
	held, err := s.start(ctx, oldHolder, oldToken)
	if err != nil {
		return nil, err
	}
	s.scene.wrote(oldHolder, "starts", oldToken, "it mounts the storage")
	return held, put(oldHolder, oldToken, "a1")
}

// freeze pauses a host: a virtual machine that is moved, a kernel that swaps, a SIGSTOP.
func (s *stage) freeze(host, format string, args ...any) {
	s.world.Freeze(host)
	s.scene.step(host, "paused", format, args...)
}

// put writes without a question, as storage takes it from whoever has it mounted.
func (s *stage) put(host string, token uint64, line string) error {
	if !slices.Contains(s.world.Holders(group), host) {
		return fmt.Errorf("%s does not hold %s and cannot write", host, group)
	}
	s.storage = append(s.storage, write{host, token, line})
	s.scene.wrote(host, "writes", token, "%s", line)
	return nil
}

// late counts the writes that came after one under a higher token: what a second writer did to the first one's data.
func (s *stage) late() int {
	late, highest := 0, uint64(0)
	for _, w := range s.storage {
		if w.token < highest {
			late++
		}
		highest = max(highest, w.token)
	}
	return late
}

// contents is what lies on the storage.
func (s *stage) contents() string {
	var lines []string
	for _, w := range s.storage {
		lines = append(lines, w.line)
	}
	return strings.Join(lines, " ")
}

// judge tells every breach of S1 that the world saw.
func (s *stage) judge() int {
	violations := s.world.Violations()
	for _, v := range violations {
		s.scene.step("judge", "breach", "%s", v.What)
	}
	return len(violations)
}
