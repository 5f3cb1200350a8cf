package stonith_test

import (
	"strings"
	"testing"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/stonith"
)

func TestSameMachine(t *testing.T) {
	const (
		uuid    = "11223344-5566-7788-99aa-bbccddeeff00"
		swapped = "44332211-6655-8877-99aa-bbccddeeff00"
		another = "11223344-5566-7788-99aa-bbccddeeff01"
	)
	type m = stonith.Machine
	type id = agents.Identity
	tests := map[string]struct {
		machine     m
		identity    id
		same, known bool
	}{
		"same UUID":                  {m{UUID: uuid}, id{UUID: uuid}, true, true},
		"other byte order":           {m{UUID: uuid}, id{UUID: swapped}, true, true},
		"other byte order, reversed": {m{UUID: swapped}, id{UUID: uuid}, true, true},
		"upper case":                 {m{UUID: uuid}, id{UUID: strings.ToUpper(uuid)}, true, true},
		"braces":                     {m{UUID: uuid}, id{UUID: "{" + uuid + "}"}, true, true},
		"no dashes":                  {m{UUID: uuid}, id{UUID: strings.ReplaceAll(uuid, "-", "")}, true, true},
		"URN":                        {m{UUID: uuid}, id{UUID: "urn:uuid:" + uuid}, true, true},
		"blanks":                     {m{UUID: " " + uuid + "\n"}, id{UUID: uuid}, true, true},
		"another UUID":               {m{UUID: uuid}, id{UUID: another}, false, true},
		"only the first three swap":  {m{UUID: uuid}, id{UUID: "44332211-6655-8877-aa99-bbccddeeff00"}, false, true},
		"UUID before serial":         {m{UUID: uuid, Serial: "SN1"}, id{UUID: another, Serial: "SN1"}, false, true},
		"UUID beside other serial":   {m{UUID: uuid, Serial: "SN1"}, id{UUID: uuid, Serial: "SN2"}, true, true},
		"same serial":                {m{Serial: "SN1"}, id{Serial: "SN1"}, true, true},
		"serial in other letters":    {m{Serial: "sn1 "}, id{Serial: " SN1"}, true, true},
		"another serial":             {m{Serial: "SN1"}, id{Serial: "SN2"}, false, true},
		"UUID on one side":           {m{UUID: uuid, Serial: "SN1"}, id{Serial: "SN2"}, false, true},
		"UUID on the other side":     {m{Serial: "SN1"}, id{UUID: uuid, Serial: "SN1"}, true, true},
		"broken UUID":                {m{UUID: uuid, Serial: "SN1"}, id{UUID: "no-uuid", Serial: "SN1"}, true, true},
		"UUID of zeros":              {m{UUID: "00000000-0000-0000-0000-000000000000"}, id{UUID: uuid}, false, false},
		"UUIDs of ones":              {m{UUID: "ffffffff-ffff-ffff-ffff-ffffffffffff"}, id{UUID: "ffffffff-ffff-ffff-ffff-ffffffffffff"}, false, false},
		"UUIDs of the firmware":      {m{UUID: "03000200-0400-0500-0006-000700080009"}, id{UUID: "03000200-0400-0500-0006-000700080009"}, false, false},
		"the same, swapped":          {m{UUID: "00020003-0004-0005-0006-000700080009"}, id{UUID: uuid}, false, false},
		"placeholder serial":         {m{Serial: "To Be Filled By O.E.M."}, id{Serial: "To Be Filled By O.E.M."}, false, false},
		"serial of zeros":            {m{Serial: "0000000"}, id{Serial: "SN1"}, false, false},
		"nothing in common":          {m{UUID: uuid}, id{Serial: "SN1"}, false, false},
		"a name is no identity":      {m{UUID: uuid, Serial: "SN1"}, id{Name: "SN1"}, false, false},
		"nothing":                    {m{}, id{}, false, false},
	}
	for name, tt := range tests {
		if same, known := stonith.SameMachine(tt.machine, tt.identity); same != tt.same || known != tt.known {
			t.Errorf("%s: same %v, known %v", name, same, known)
		}
	}
}

// FuzzSameMachine: whatever a device says, it is the same from both sides, and what is not known is not the same.
func FuzzSameMachine(f *testing.F) {
	f.Add("11223344-5566-7788-99aa-bbccddeeff00", "SN1", "{44332211-6655-8877-99AA-BBCCDDEEFF00}", "sn1")
	f.Add("", "\x00", "urn:uuid:", "Default string")
	f.Fuzz(func(t *testing.T, uuid, serial, otherUUID, otherSerial string) {
		same, known := stonith.SameMachine(stonith.Machine{UUID: uuid, Serial: serial}, agents.Identity{UUID: otherUUID, Serial: otherSerial})
		same2, known2 := stonith.SameMachine(stonith.Machine{UUID: otherUUID, Serial: otherSerial}, agents.Identity{UUID: uuid, Serial: serial})
		if same != same2 || known != known2 || same && !known {
			t.Errorf("same %v and %v, known %v and %v", same, same2, known, known2)
		}
		if self, known := stonith.SameMachine(stonith.Machine{UUID: uuid, Serial: serial}, agents.Identity{UUID: uuid, Serial: serial}); self != known {
			t.Error("not the same as itself")
		}
	})
}
