package redfish

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/agents"
)

// FuzzSystem: whatever a BMC sends, off is read only out of a document in which the exact
// property PowerState is, once, the exact word Off. No document passes for a system and a chassis.
func FuzzSystem(f *testing.F) {
	for _, s := range []string{
		systemDocument(`"PowerState":"Off",`),
		systemDocument(`"PowerState":"On",`),
		systemDocument(`"powerstate":"Off",`),
		systemDocument(`"PowerState":"On","PowerState":"Off",`),
		systemDocument(`"PowerState":"\u004fff","UUID":null,"SerialNumber":7,`),
		systemDocument(`"Oem":{"PowerState":"Off"},`),
		`{"@odata.type":"#ComputerSystem.v1_0_0.ComputerSystem","PowerState":{"Off":1},"Actions":[]}`,
		`{"@odata.type":"#Chassis.v1_5_1.Chassis","PowerState":"Off","Actions":{"#Chassis.Reset":{"target":"/x"}}}`,
		"<html>", "{", "{}", "null", "[]", `{"a":1}{"b":2}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		s, err := parseSystem("/x", doc)
		c, chassisErr := parseSystem(chassisURI+"/x", doc)
		switch {
		case err == nil && chassisErr == nil:
			t.Fatal("a system and a chassis at once")
		case chassisErr == nil:
			s = c
		case err != nil:
			return
		}
		r := s.reading()
		if r.Detail == "" || strings.ContainsAny(r.Detail, "\n\x00\x1b") || len(r.Detail) > 200 {
			t.Errorf("detail %q", r.Detail)
		}
		var loose map[string]any
		if json.Unmarshal(doc, &loose) != nil {
			t.Fatalf("read %v out of broken JSON", r)
		}
		if (r.State == agents.Off) != (loose["PowerState"] == "Off") {
			t.Errorf("read %v of %v", r, loose["PowerState"])
		}
		if n := bytes.Count(doc, []byte(`"PowerState"`)); r.State == agents.Off && n == 0 && !bytes.Contains(doc, []byte(`\u`)) {
			t.Errorf("off without a PowerState")
		}
	})
}

// FuzzDocuments: the other parsers neither panic nor hand out what is not there.
func FuzzDocuments(f *testing.F) {
	f.Add([]byte(`{"Members":[{"@odata.id":"/redfish/v1/Systems/1"}],"Members@odata.nextLink":"/x"}`))
	f.Add([]byte(`{"Members":[null,{"@odata.id":7}]}`))
	f.Add([]byte(`{"Parameters":[{"Name":"ResetType","AllowableValues":["On",null,"ForceOff"]}]}`))
	f.Add([]byte(`{"error":{"code":"Base.1.8.GeneralError","@Message.ExtendedInfo":[{"MessageId":"IDRAC.2.8.SYS403"}]}}`))
	f.Add([]byte(`{"error":[]}`))
	f.Add([]byte(`{"AssignedPrivileges":["Login"],"OemPrivileges":[]}`))
	f.Add([]byte(`{"AssignedPrivileges":["Login","ConfigureComponents"],"OemPrivileges":null}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if members, _, err := parseCollection(doc); err == nil {
			for _, m := range members {
				if m == "" {
					t.Error("a member without a name")
				}
			}
		}
		if values, err := parseActionInfo(doc); err != nil && values != nil {
			t.Error("values out of a broken document")
		}
		if role, err := fields(doc); err == nil && rightOf(role) == denied {
			var loose map[string]any
			json.Unmarshal(doc, &loose) // fields took it, so it is JSON
			list, ok := loose["AssignedPrivileges"].([]any)
			if !ok || slices.Contains(list, any("ConfigureComponents")) {
				t.Error("a right that is there, or is not told, is denied")
			}
		}
		for _, id := range messageIDs(doc) {
			if strings.ContainsAny(id, " \n\"'\\$") || len(id) > 80 {
				t.Errorf("message identifier %q", id)
			}
		}
	})
}

// FuzzReference: no link of a document leads away from the BMC.
func FuzzReference(f *testing.F) {
	for _, s := range []string{"/redfish/v1", "//x/y", "https://10.9.0.12/x", "@x/", "/\\x", "/..//x", "/x#y", "https:/x", "/%2e%2e//x"} {
		f.Add(s)
	}
	base := address{scheme: "https", host: "10.9.0.12"}
	f.Fuzz(func(t *testing.T, ref string) {
		path, err := base.reference(ref)
		if err != nil {
			return
		}
		// As gofish does it: by joining text.
		u, err := url.Parse(base.endpoint() + path)
		if err != nil || u.Host != base.host || u.Scheme != base.scheme || u.User != nil {
			t.Errorf("%q became %q, which leads to %v, %v", ref, path, u, err)
		}
	})
}

// FuzzStatusError: a refusal shows nothing of the body but message identifiers.
func FuzzStatusError(f *testing.F) {
	f.Add(503, "Base.1.8.SessionLimitExceeded", "7")
	f.Add(401, "quoted "+testPassword, "Wed, 21 Oct 2015 07:28:00 GMT")
	f.Add(200, "", "-1")
	f.Fuzz(func(t *testing.T, status int, id, after string) {
		body, _ := json.Marshal(map[string]any{"error": map[string]any{"code": id, "message": id}})
		resp := &http.Response{StatusCode: status, Header: http.Header{}, Request: httptest.NewRequest(http.MethodGet, "/redfish/v1/", nil)}
		resp.Header.Set("Retry-After", after)
		e := newStatusError(resp, body)
		if e.Unwrap() == nil || strings.ContainsAny(e.Error(), "\n\"") {
			t.Errorf("error %q", e)
		}
		if e.retryAfter < 0 || e.retryAfter.Hours() > 1 {
			t.Errorf("wait %v", e.retryAfter)
		}
	})
}

// FuzzAddress: an address that is accepted names the host that is written in it, and an error
// repeats nothing of it.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"https://10.9.0.12", "10.9.0.12:443", "fd00::12", "[fd00::12]:443", "bmc", "https://u:p@bmc", "http://bmc", "://", "bmc:", "https://bmc:%31"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, errs := parseAddress(s, false)
		if errs != nil {
			if text := errs[0].Error(); len(s) > 12 && strings.Contains(text, s) {
				t.Errorf("the error repeats the address: %s", text)
			}
			return
		}
		u, err := url.Parse(a.endpoint() + "/redfish/v1/")
		if err != nil || u.Scheme != "https" || u.Host != a.host || u.Hostname() == "" || u.User != nil || u.Path != "/redfish/v1/" {
			t.Errorf("%q gives %v, %v", s, u, err)
		}
	})
}
