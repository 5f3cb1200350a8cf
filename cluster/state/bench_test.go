package state

import (
	"fmt"
	"testing"
)

// BenchmarkGrant tells what one command costs in a cluster of so many groups: Apply copies the map of what it changes.
func BenchmarkGrant(b *testing.B) {
	for _, groups := range []int{100, 1000, 10_000} {
		c := &Configure{Cluster: "web", Nodes: testConfig.Nodes}
		for i := range groups {
			c.Groups = append(c.Groups, ConfigGroup{Name: fmt.Sprintf("g%05d", i)})
		}
		s, _ := Apply(&State{}, 1, Command{Configure: c})
		s, _ = Apply(s, 2, join("alpha", "a1"))
		b.Run(fmt.Sprintf("groups=%d/apply", groups), func(b *testing.B) {
			for b.Loop() {
				if _, res := Apply(s, 3, grant("g00007", "alpha", "a1")); res.Err != nil {
					b.Fatal(res.Err)
				}
			}
		})
		b.Run(fmt.Sprintf("groups=%d/batch", groups), func(b *testing.B) {
			batch, i := NewBatch(s), 0
			for b.Loop() {
				if i++; i > groups {
					batch, i = NewBatch(s), 1
				}
				if res := batch.Apply(grant(fmt.Sprintf("g%05d", i-1), "alpha", "a1")); res.Err != nil {
					b.Fatal(res.Err)
				}
			}
		})
	}
}
