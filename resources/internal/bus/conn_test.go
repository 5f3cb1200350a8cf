package bus

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// A peer on the private socket that breaks off, talks nonsense or falls silent, at each step of a connection.

// serve answers connections until the test ends, and gives the path of the socket.
func serve(t *testing.T, talk func(c net.Conn)) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "private")
	l, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			talk(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return file
}

// silence reads until the other side has hung up.
func silence(c net.Conn) {
	for b := make([]byte, 1000); ; {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}

// authenticate plays the server of the D-Bus specification, "Authentication Protocol".
func authenticate(c net.Conn) *bufio.Reader {
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		switch line = strings.Trim(line, "\x00\r\n"); {
		case err != nil || line == "BEGIN":
			return in
		case line == "AUTH":
			fmt.Fprint(c, "REJECTED EXTERNAL\r\n")
		case line == "AUTH EXTERNAL":
			fmt.Fprint(c, "DATA\r\n")
		case strings.HasPrefix(line, "DATA"):
			fmt.Fprint(c, "OK 1234deadbeef\r\n")
		default: // NEGOTIATE_UNIX_FD
			fmt.Fprint(c, "ERROR\r\n")
		}
	}
}

// next is the next call that wants an answer.
func next(in *bufio.Reader) (*dbus.Message, bool) {
	for {
		call, err := dbus.DecodeMessage(in)
		if err != nil {
			return nil, false
		}
		if call.Flags&dbus.FlagNoReplyExpected == 0 {
			return call, true
		}
	}
}

// reply answers a call.
func reply(t *testing.T, c net.Conn, call *dbus.Message, body ...any) {
	send(t, c, &dbus.Message{Type: dbus.TypeMethodReply, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
	}})
}

func send(t *testing.T, c net.Conn, m *dbus.Message) {
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	if err := m.EncodeTo(c, binary.LittleEndian); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
}

func jobRemoved(t *testing.T, c net.Conn, body ...any) {
	send(t, c, &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath(managerPath)),
		dbus.FieldInterface: dbus.MakeVariant(managerInterface),
		dbus.FieldMember:    dbus.MakeVariant("JobRemoved"),
	}})
}

// TestSilentPeer: wherever the other side falls silent, a call ends with its context and leaves nothing.
func TestSilentPeer(t *testing.T) {
	for name, talk := range map[string]func(c net.Conn){
		"from the beginning": silence,
		"in the authentication": func(c net.Conn) {
			fmt.Fprint(c, "REJECTED EXTERNAL\r\n")
			silence(c)
		},
		"after it": func(c net.Conn) { authenticate(c); silence(c) },
		"after the first call": func(c net.Conn) {
			in := authenticate(c)
			if call, ok := next(in); ok {
				reply(t, c, call)
			}
			silence(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := serve(t, talk)
			ctx := deadline(t, 100*time.Millisecond)
			begun := time.Now()
			c, err := connectTo(ctx, file)
			if err == nil {
				_, err = c.Unit(ctx, "app.service")
				c.Close()
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			if took := time.Since(begun); took > 100*time.Millisecond+obeyed {
				t.Errorf("took %s", took)
			}
		})
	}
}

// TestBrokenPeer: what is no systemd is a fault of the node, and nothing more.
func TestBrokenPeer(t *testing.T) {
	for name, talk := range map[string]func(c net.Conn){
		"hangs up":           func(c net.Conn) {},
		"talks nonsense":     func(c net.Conn) { fmt.Fprint(c, strings.Repeat("\x00\xff\r\n", 1000)); silence(c) },
		"knows no such way":  func(c net.Conn) { fmt.Fprint(c, "REJECTED KERBEROS_V4\r\n"); silence(c) },
		"hangs up after it":  func(c net.Conn) { authenticate(c) },
		"nonsense after it":  func(c net.Conn) { authenticate(c); fmt.Fprint(c, strings.Repeat("l\x01\x02\x03", 1000)) },
		"error to the first": func(c net.Conn) { _, _ = next(authenticate(c)) },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := connectTo(deadline(t, 5*time.Second), serve(t, talk))
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := connectTo(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Errorf("%v", err)
	}
}

// TestFirstMessageIsNudged: a systemd that lets the first message lie until there is another one is given another one.
func TestFirstMessageIsNudged(t *testing.T) {
	file := serve(t, func(c net.Conn) {
		in := authenticate(c)
		first, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		if _, err := dbus.DecodeMessage(in); err == nil {
			reply(t, c, first)
		}
		silence(c)
	})
	c, err := connectTo(deadline(t, 5*time.Second), file)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestJobEndsBeforeItsAnswer: a result that overtakes the number of its job is not lost; nor do odd signals matter.
func TestJobEndsBeforeItsAnswer(t *testing.T) {
	file := serve(t, func(c net.Conn) {
		in := authenticate(c)
		subscribe, ok := next(in)
		if !ok {
			return
		}
		reply(t, c, subscribe)
		start, ok := next(in)
		if !ok {
			return
		}
		jobRemoved(t, c)
		jobRemoved(t, c, "no number")
		jobRemoved(t, c, uint32(7))
		jobRemoved(t, c, uint32(6), dbus.ObjectPath("/job/6"), "other.service", "failed")
		jobRemoved(t, c, uint32(7), dbus.ObjectPath("/job/7"), "app.service", "dependency")
		reply(t, c, start, dbus.ObjectPath("/org/freedesktop/systemd1/job/7"))
		silence(c)
	})
	ctx := deadline(t, 5*time.Second)
	c, err := connectTo(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	job, result, err := c.Enqueue(ctx, "StartUnit", "app.service")
	if err != nil || job != 7 {
		t.Fatalf("job %d, %v", job, err)
	}
	if word, err := Await(ctx, c, "app.service", job, result); err != nil || word != "dependency" {
		t.Errorf("result %q, %v", word, err)
	}
}

// TestOddAnswers: an answer of another shape is an error.
func TestOddAnswers(t *testing.T) {
	for name, body := range map[string][]any{
		"nothing": nil, "a number": {uint32(1)}, "a list": {[]string{"a"}}, "a job without a number": {dbus.ObjectPath("/job/x")},
	} {
		t.Run(name, func(t *testing.T) {
			file := serve(t, func(c net.Conn) {
				in := authenticate(c)
				first, ok := next(in)
				for call := first; ok; call, ok = next(in) {
					if call == first {
						reply(t, c, call)
					} else {
						reply(t, c, call, body...)
					}
				}
			})
			ctx := deadline(t, 5*time.Second)
			c, err := connectTo(ctx, file)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if p, err := c.Unit(ctx, "app.service"); err == nil {
				t.Errorf("properties %v", p)
			}
			if p, err := c.Processes(ctx, "app.service"); err == nil {
				t.Errorf("processes %v", p)
			}
			if job, _, err := c.Enqueue(ctx, "StartUnit", "app.service"); err == nil {
				t.Errorf("job %d", job)
			}
		})
	}
}
