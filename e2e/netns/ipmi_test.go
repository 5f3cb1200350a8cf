package netns

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
)

// deviceNumber is the host with the BMCs of all nodes: it has power of its own.
const deviceNumber = 200

// TestIPMI: power is switched by a real IPMI BMC, over the network that all else goes over.
func TestIPMI(t *testing.T) {
	t.Parallel()
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(ipmipeer.DefaultPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLab(t, shape{members: 3, fencing: func(node string) string {
		return fmt.Sprintf("\n[[fence_device]]\nname = \"%s-power\"\nagent = \"ipmi\"\naddress = \"%s:%d\"\nusername = %q\npassword_file = %q\n",
			node, address(0, deviceNumber), 6230+int(node[1]-'0'), ipmipeer.DefaultUsername, password)
	}})
	space, err := newSpace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(space.close)
	if err := l.wires.attach(space, "devices", deviceNumber); err != nil {
		t.Fatal(err)
	}
	for _, name := range l.names {
		h := l.hosts[name]
		bmc := ipmipeer.Start(t, ipmipeer.Config{
			Command: filepath.Join(programs, switchName) + " " + l.device.socket() + " " + name,
			GUID:    fmt.Sprintf("%032x", h.number),
		})
		relay(t, space, fmt.Sprintf("%s:%d", address(0, deviceNumber), 6230+int(h.number)), bmc.Addr())
	}
	l.powerOn(l.names...)
	l.settled("the cluster forms", l.names...)

	before := l.writes(theGroup)
	if err := l.hosts[before.Node].freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.settled("taken over, and the shot one is back", l.names...)
	if e := l.writes(theGroup); e.Token <= before.Token || e.Node == before.Node {
		t.Errorf("%v, then %v", before, e)
	}
	if shots := l.shots(); len(shots) != 1 || shots[0].Boot != before.Boot {
		t.Errorf("shots: %v", shots)
	}
	l.judge()
}

// relay carries datagrams between a port in a namespace and a device that listens on the machine's loopback.
func relay(t *testing.T, in *space, front, back string) {
	t.Helper()
	var listener net.PacketConn
	err := in.do(func() (err error) {
		listener, err = net.ListenPacket("udp4", front)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		done.Wait()
	})
	done.Go(func() {
		backs := map[string]net.Conn{} // by the asker
		defer func() {
			for _, c := range backs {
				c.Close()
			}
		}()
		buffer := make([]byte, 64<<10)
		for {
			n, from, err := listener.ReadFrom(buffer)
			if err != nil {
				return
			}
			c := backs[from.String()]
			if c == nil {
				if c, err = net.Dial("udp4", back); err != nil {
					continue
				}
				backs[from.String()] = c
				done.Go(func() { answer(listener, c, from) })
			}
			c.Write(buffer[:n]) // lost or not, as UDP is
		}
	})
}

func answer(listener net.PacketConn, c net.Conn, to net.Addr) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.Read(buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			listener.WriteTo(buffer[:n], to)
		}
	}
}
