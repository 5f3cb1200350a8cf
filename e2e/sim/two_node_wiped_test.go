package sim

import (
	"strings"
	"testing"
	"time"
)

// TestTwoNodesWiped: the data folder of one of two nodes is emptied while both are up. Nobody can elect a coordinator any more, and
// nobody goes on by itself, since both are heard. The one that has its data says what to do, and that does it.
func TestTwoNodesWiped(t *testing.T) {
	for _, wiped := range []string{"alpha", "beta"} {
		pair(t, Options{Detection: time.Second}, map[string]string{"db": "alpha"}, func(t *testing.T, c *Cluster) {
			keeps := other(c, wiped, wiped)
			before := token(c)
			c.WipeDisk(wiped)
			c.RestartDaemon(wiped, 200*time.Millisecond)
			time.Sleep(30 * time.Second)
			st, err := c.Operator(keeps).Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if p := st.Problems[0]; !strings.Contains(p.Text, wiped+" came back with an empty data folder, and so without a vote: of 2 voters 1 can vote, and 2 are needed") ||
				!strings.Contains(p.Cure, "hamgr quorum force "+keeps) {
				t.Errorf("it says %+v", p)
			}
			if _, err := c.force(keeps); err != nil {
				t.Fatal(err)
			}
			c.bothVote(10 * time.Second)
			c.WaitRunning(10 * time.Second)
			if keeps == "alpha" && token(c) != before {
				t.Errorf("db was restarted on alpha, which had lost nothing: token %d after %d", token(c), before)
			}
		})
	}
}
