package exec

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// oddPasswords have what shells, quoting and regular expressions trip over, and what is hard to find again.
var oddPasswords = []string{
	testPassword, "hunter2", "$HOME`id`'\"#!;\\%&|<>", "it's", "'''", `\\\`, `"quoted"`, " blanks around ", "tab\tinside",
	"ünïcödé-\U0001f511", "latin1 \xfc\xff bytes", "%s%d%n", "a=b;c=d", "<&>", "[secret]x", "abcd", "abc", "x", "é", "p@s$w0rd!", "private",
	strings.Repeat("long-", 60), "a.b*c+d?e", "+-*/", "$1$2",
}

// A secret is nowhere in what is said, however the agent spells it.
func TestSecretsAreBlottedOut(t *testing.T) {
	for _, secret := range oddPasswords {
		c := newCensor([]string{secret, "", "other-secret"})
		quoted, ascii := strconv.Quote(secret), strconv.QuoteToASCII(secret)
		asJSON, _ := json.Marshal(secret)
		for name, spelled := range map[string]string{
			"plain":      secret,
			"sh":         "'" + strings.ReplaceAll(secret, "'", `'\''`) + "'",
			"pipes":      "'" + strings.ReplaceAll(secret, "'", `'"'"'`) + "'",
			"quoted":     quoted,
			"ASCII":      ascii,
			"JSON":       string(asJSON),
			"query":      url.QueryEscape(secret),
			"path":       url.PathEscape(secret),
			"hex":        hex.EncodeToString([]byte(secret)),
			"base64":     base64.StdEncoding.EncodeToString([]byte(secret)),
			"basic auth": base64.StdEncoding.EncodeToString([]byte("user:" + secret)),
			"basic, 2":   base64.StdEncoding.EncodeToString([]byte("admin1:" + secret)),
			"basic, 3":   base64.StdEncoding.EncodeToString([]byte("fencers:" + secret)),
			"printf %q":  escaped(secret),
			"twice":      secret + secret,
			"in a word":  "-P" + secret + "x",
		} {
			if len(secret) < 6 && (strings.HasPrefix(name, "bas") || name == "hex") {
				continue // cannot be told from other text
			}
			said := c.say("2026-11-30 12:00:00,000 ERROR: first line\nconnect " + spelled + " failed\nlast line\n")
			if strings.Contains(said, "other-secret") || spelled != "" && strings.Contains(said, strings.TrimSpace(spelled)) ||
				len(secret) >= shortest && secret != "[secret]x" && strings.Contains(said, secret) {
				t.Errorf("%q, %s: %q", secret, name, said)
			}
			if len(letters(secret)) >= shortest && strings.Contains(letters(strings.ReplaceAll(said, replacement, "")), letters(secret)) && secret != "[secret]x" {
				t.Errorf("%q, %s: can be guessed from %q", secret, name, said)
			}
			if !strings.Contains(said, "last line") && !strings.ContainsAny(secret, "xé") {
				t.Errorf("%q, %s: too much is left out: %q", secret, name, said)
			}
		}
	}
}

// escaped puts a backslash before everything that is not a letter, as bash does.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		if !isLetter(r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// An agent that prints its password, plain and otherwise: neither errors nor logs nor readings show it.
func TestPasswordPrinted(t *testing.T) {
	t.Parallel()
	for i, secret := range oddPasswords {
		if len(secret) < shortest {
			continue
		}
		for _, body := range []string{
			`printf '%s\n' "snmpget -c $password failed" >&2; exit 1`,
			`printf '%s\n' "Returned 1: $password"; exit 1`,
			`printf 'Status: %s\n' "$password"; exit 2`,
			`printf 'a,%s\nb,%s\n' "$password" "$password"; printf '%s,\n' "$password"; exit 0 # list)`,
			`yes "0123456789$password" | head -c 1000000 >&2; exit 1`,
		} {
			if i > 4 && body[0] == 'y' {
				continue
			}
			s := script(t, body)
			o := s.options()
			o.Secrets["password"] = agents.NewSecret(secret)
			var logged bytes.Buffer
			h, err := o.Open(slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
			if err != nil {
				t.Fatal(err)
			}
			r, err := h.Status(within(t, 5*time.Second), "1")
			off := h.Off(within(t, 5*time.Second), "1")
			check := h.(agents.Checker).Check(within(t, 5*time.Second), "1")
			said := fmt.Sprintf("%v %#v %v %#v %v %#v %s\n%+v %#v", err, err, off, off, check, check, r.Detail, o, o)
			if secret != "[secret]x" && strings.Contains(said+logged.String(), secret) {
				t.Errorf("%q is shown: %s\n%s", secret, said, logged.String())
			}
			if r.State != agents.Unknown && body[0] != 'p' {
				t.Errorf("%v", r)
			}
			if !strings.Contains(s.read("stdin"), "password="+quoted(secret)+"\n") {
				t.Errorf("%q did not arrive: %q", secret, s.read("stdin"))
			}
		}
	}
}

func TestHeadAndTail(t *testing.T) {
	for _, chunk := range []int{1, 3, 7, 100} {
		h, tl := &head{most: 10}, &tail{most: 10}
		text := "0123\n4567\n89ab\ncdef\n"
		for i := 0; i < len(text); i += chunk {
			part := []byte(text[i:min(i+chunk, len(text))])
			if n, err := h.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
			if n, err := tl.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if h.text() != "0123\n4567\n" || !h.cut {
			t.Errorf("chunks of %d: head %q", chunk, h.text())
		}
		// Its first line may have lost its beginning.
		if tl.text() != "cdef\n" || !tl.cut {
			t.Errorf("chunks of %d: tail %q", chunk, tl.text())
		}
	}
}

func TestSay(t *testing.T) {
	var c censor
	for in, want := range map[string]string{
		"":          "",
		"\n \n\t\n": "",
		"2026-11-30 12:00:00,123 ERROR: Connection lost\n\n2026-11-30 12:00:00,124 ERROR: Please use '-h' for usage\n\n": "Connection lost",
		"a\nb\nc\nd\n":           "b; c; d",
		"a\nb\na\nb\n":           "a; b",
		"x\x1b[2J\x07y\u202e\n":  "x?[2J?y?",
		"broken \xff\xfe":        "broken ��",
		strings.Repeat("é", 500): strings.Repeat("é", mostRunes) + "…",
	} {
		if got := c.say(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzSay(f *testing.F) {
	for _, secret := range oddPasswords {
		f.Add(secret, "connect "+secret+" failed\n"+strconv.Quote(secret))
	}
	f.Fuzz(func(t *testing.T, secret, text string) {
		said := newCensor([]string{secret}).say(text)
		if len([]rune(said)) > mostRunes+1 || strings.ContainsAny(said, "\n\r\x00\x1b") {
			t.Errorf("%q", said)
		}
		// The words that replace it may hold it themselves.
		if rest := strings.NewReplacer(replacement, "\n", leftOut, "\n", "; ", "\n").Replace(said); len(secret) >= shortest && !strings.ContainsAny(secret, "\n?;…") &&
			strings.TrimSpace(secret) == secret && agents.Clip(secret, mostRunes) == secret && strings.Contains(rest, secret) {
			t.Errorf("%q is shown in %q", secret, said)
		}
	})
}
