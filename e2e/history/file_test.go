package history

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestFile(t *testing.T) {
	h := begun().stop(40, "a", 1).h
	var file bytes.Buffer
	if err := h.Write(&file); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(file.String(), "\n"); got != len(h) {
		t.Errorf("%d lines for %d events", got, len(h))
	}
	if got, err := Read(&file); err != nil || !reflect.DeepEqual(got, h.sorted()) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{`{"at":1,"kind":"borrowed"}`, `{"at":1,"kind":"write","more":1}`, `{"at":-1,"kind":"write"}`, `{"at":1,`} {
		if h, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%s was read as %v", bad, h)
		}
	}
}

// FuzzRead: whatever a file says, it is read or refused; and what was read is judged, and written as it was.
func FuzzRead(f *testing.F) {
	var file bytes.Buffer
	begun().on(40, SeenOff, "a").grant(70, "b", 2).write(80, "b", "b1", 2).write(90, "a", "a1", 1).h.Write(&file)
	f.Add(file.Bytes())
	f.Add([]byte(`{"at":1,"kind":"granted","group":"g","token":1}` + "\n" + `{"at":1,"kind":"boot"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		Check(h)
		if len(h) < 20 {
			Linearizable(h)
		}
		var out bytes.Buffer
		if err := h.Write(&out); err != nil {
			t.Fatal(err)
		}
		if again, err := Read(&out); err != nil || !reflect.DeepEqual(again, h.sorted()) {
			t.Fatalf("%v, %v, was %v", again, err, h)
		}
	})
}
