package lvm

import (
	"slices"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/resources"
)

func TestGroupOf(t *testing.T) {
	for name, want := range map[string]string{
		"vg-lv": "vg", "vg--x-lv--1": "vg-x", "vg--x-lv--1-real": "vg-x", "a---b": "a-", "vg.1+-lv_x": "vg.1+", "vg----x-l": "vg--x",
		"": "", "vg": "", "vg--x": "", "vg-": "", "vg--": "", "mpatha": "",
	} {
		if got := groupOf(name); got != want {
			t.Errorf("%q is of group %q, want %q", name, got, want)
		}
	}
}

func FuzzGroupOf(f *testing.F) {
	for _, s := range []string{"vg-lv", "vg--x-lv--1-real", "-", "--", "---"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		group := groupOf(name)
		if group == "" {
			return
		}
		if doubled := strings.ReplaceAll(group, "-", "--"); !strings.HasPrefix(name, doubled+"-") {
			t.Errorf("%q is of group %q", name, group)
		}
	})
}

func TestParseReport(t *testing.T) {
	f := fake{}
	good := f.text("alpha", "1", "0")
	m, err := parseReport([]byte(good), "vg-x")
	must(t, err)
	if m.uuid != short(groupUUID) || m.systemID != "alpha" || !m.autoactivated || m.exported || m.clustered || m.missing != nil ||
		!slices.Equal(m.volumes, []volume{{"lv-1", short(lv1UUID)}, {"lv2", short(lv2UUID)}}) {
		t.Errorf("%+v", m)
	}
	m, err = parseReport([]byte(f.text("", "0", "1")), "vg-x")
	must(t, err)
	if m.systemID != "" || m.autoactivated || len(m.missing) != 1 {
		t.Errorf("%+v", m)
	}
	// A count without its disks is a missing disk all the same.
	m, err = parseReport([]byte(strings.Replace(good, `_pv_count":"0"`, `_pv_count":"1"`, 1)), "vg-x")
	must(t, err)
	if m.missing == nil {
		t.Errorf("%+v", m)
	}
	one := strings.SplitAfter(good, "\"report\": [")
	twice := one[0] + one[1][:strings.LastIndex(one[1], "      ]\n  }")] + "," + one[1]
	for text, words := range map[string]string{
		"":                                       "report of LVM",
		"{}":                                     "no such volume group",
		`{"report":[{}]}`:                        "no such volume group",
		twice:                                    "two volume groups have the name vg-x",
		strings.ReplaceAll(good, "vg-x", "vg-y"): `of the group "vg-y"`,
		strings.Replace(good, groupUUID, "../../../etc", 1):                             "is no UUID",
		strings.Replace(good, lv1UUID, "", 1):                                           "is no UUID",
		strings.Replace(good, `"vg_autoactivation":"1"`, `"x":"1"`, 1):                  `vg_autoactivation is ""`,
		strings.Replace(good, `"vg_autoactivation":"1"`, `"vg_autoactivation":"-1"`, 1): `vg_autoactivation is "-1"`,
		strings.Replace(good, `"vg_exported":"0"`, `"vg_exported":"maybe"`, 1):          "vg_exported",
		strings.Replace(good, `"vg_systemid":"alpha", `, "", 1):                         "not all that was asked for",
		strings.Replace(good, `"vg_lock_type":"", `, "", 1):                             "not all that was asked for",
		strings.Replace(good, `"pv_missing":"0"`, `"pv_missing":"unknown"`, 1):          "pv_missing",
	} {
		_, err := parseReport([]byte(text), "vg-x")
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("error %v lacks %q for\n%s", err, words, text)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(fake{}.text("alpha", "0", "1")))
	f.Add([]byte(`{"report":[{"vg":[{"vg_name":"vg-x"}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseReport(b, "vg-x")
		if err != nil {
			return
		}
		if !isUUID(m.uuid) {
			t.Errorf("UUID %q", m.uuid)
		}
		for _, w := range m.volumes {
			if !isUUID(w.UUID) {
				t.Errorf("UUID %q of a volume", w.UUID)
			}
		}
	})
}

func TestParseHost(t *testing.T) {
	for out, want := range map[string]string{"  system ID: alpha\n": "alpha", "  system ID: \n": "", "  system ID:\n": ""} {
		if got, err := parseSystemID([]byte(out)); got != want || err != nil {
			t.Errorf("%q: %q %v", out, got, err)
		}
	}
	conf := "activation {\n\tvolume_list=[\"a\",\"@b\\\"\"]\n}\nlocal {\n\textra_system_ids=\"x\"\n\tempty=[]\n}\n"
	for key, want := range map[string][]string{"volume_list": {"a", `@b"`}, "extra_system_ids": {"x"}, "empty": {}} {
		if got, found, err := parseList([]byte(conf), key); !slices.Equal(got, want) || !found || err != nil {
			t.Errorf("%s: %q %v %v", key, got, found, err)
		}
	}
	if _, found, err := parseList([]byte(conf), "list"); found || err != nil {
		t.Errorf("found what is not there: %v", err)
	}
	if _, _, err := parseList([]byte("volume_list=[1]"), "volume_list"); err == nil {
		t.Error("a list of numbers is taken")
	}
}

func FuzzParseHost(f *testing.F) {
	f.Add([]byte("  system ID: alpha\n"))
	f.Add([]byte("activation {\n\tvolume_list=[\"a\",\"@b\"]\n}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, err := parseSystemID(b); err == nil && id != "" && strings.ContainsAny(id, "\"\\[] \n") {
			t.Errorf("system ID %q", id)
		}
		if list, found, _ := parseList(b, "volume_list"); len(list) > 0 && !found {
			t.Errorf("%q was not found", list)
		}
	})
}

func FuzzTables(f *testing.F) {
	f.Add([]byte("26 1 252:0 / /srv/db rw,relatime shared:1 - ext4 /dev/mapper/vg-lv rw\n"))
	f.Add([]byte("/dev/dm-0 partition 4 0 -2\n"))
	f.Add([]byte(`{"uuid":"` + short(groupUUID) + `","volumes":[{"name":"a","uuid":"` + short(lv1UUID) + `"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		mountsOf(b, "252:0")
		swapsOn(b, "252:0")
		if r := parseRecord(b); r.UUID == "" && len(r.Volumes) > 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestMountsOf(t *testing.T) {
	table := "26 1 252:0 / /srv/db rw,relatime shared:1 - ext4 /dev/mapper/vg-lv rw\n27 1 252:1 / /srv/x rw - ext4 /dev/mapper/vg-x rw\nodd\n"
	if got := mountsOf([]byte(table), "252:0"); !slices.Equal(got, []string{"/srv/db"}) {
		t.Errorf("%q", got)
	}
}

func TestJudge(t *testing.T) {
	good := metadata{uuid: short(groupUUID), systemID: "alpha"}
	for name, c := range map[string]struct {
		change  func(*metadata, *host)
		cmdline string
		mode    string
		is      error
		words   []string
	}{
		"good":           {},
		"foreign":        {change: func(m *metadata, _ *host) { m.systemID = "beta" }},
		"tags":           {change: func(_ *metadata, h *host) { h.filtered, h.allowed = true, []string{"@db"} }},
		"filter":         {change: func(_ *metadata, h *host) { h.filtered = true }, is: resources.ErrSetup, words: []string{`add "vg-x"`}},
		"filter, prefix": {change: func(_ *metadata, h *host) { h.filtered, h.allowed = true, []string{"vg-x2", "vg"} }, is: resources.ErrSetup},
		"autoactivated": {change: func(m *metadata, _ *host) { m.autoactivated = true }, is: resources.ErrSetup,
			words: []string{"; run: vgchange --setautoactivation n vg-x"}},
		"autoactivated, foreign": {change: func(m *metadata, _ *host) { m.autoactivated, m.systemID = true, "beta" }, is: resources.ErrSetup,
			words: []string{"run where LVM's system ID is beta: vgchange --setautoactivation n vg-x"}},
		"autoactivated, plain": {mode: plainMode, change: func(m *metadata, _ *host) { m.autoactivated, m.systemID = true, "" }, is: resources.ErrSetup},
		"initramfs":            {cmdline: "root=/dev/sda rd.lvm.lv=vg-x/lv2 quiet\n", is: resources.ErrSetup, words: []string{"rd.lvm.lv=vg-x/lv2"}},
		"initramfs, group":     {cmdline: "rd.lvm.vg=vg-x", is: resources.ErrSetup},
		"initramfs, other":     {cmdline: "rd.lvm.vg=vg-x2 rd.lvm.lv=vg/vg-x"},
		"lvmlockd":             {change: func(m *metadata, _ *host) { m.lockType = "sanlock" }, is: resources.ErrSetup, words: []string{"sanlock"}},
		"no lock":              {change: func(m *metadata, _ *host) { m.lockType = "none" }},
		"clvmd":                {change: func(m *metadata, _ *host) { m.clustered = true }, is: resources.ErrSetup},
		"exported":             {change: func(m *metadata, _ *host) { m.exported = true }, is: resources.ErrSetup, words: []string{"vgimport vg-x"}},
		"host without ID":      {change: func(_ *metadata, h *host) { h.systemID = "" }, is: resources.ErrSetup, words: []string{"system_id_source"}},
		"group without ID": {change: func(m *metadata, _ *host) { m.systemID = "" }, is: resources.ErrSetup,
			words: []string{"vgchange --yes --systemid alpha vg-x"}},
		"odd ID":  {change: func(m *metadata, _ *host) { m.systemID = `a"]` }, is: resources.ErrSetup},
		"extra":   {change: func(m *metadata, h *host) { m.systemID, h.extra = "beta", []string{"beta"} }, is: resources.ErrSetup},
		"extra 2": {change: func(m *metadata, h *host) { m.systemID, h.extra = "beta", []string{"gamma"} }},
		"plain":   {mode: plainMode, change: func(m *metadata, _ *host) { m.systemID = "" }},
		"plain, foreign": {mode: plainMode, change: func(m *metadata, _ *host) { m.systemID = "beta" }, is: resources.ErrSetup,
			words: []string{`vgchange --yes --systemid "" vg-x`}},
		"missing":     {change: func(m *metadata, _ *host) { m.missing = []string{"x-y"} }, is: resources.ErrNode, words: []string{"1 of its disks are missing (x-y)"}},
		"setup first": {change: func(m *metadata, _ *host) { m.missing, m.exported = []string{"x-y"}, true }, is: resources.ErrSetup},
	} {
		t.Run(name, func(t *testing.T) {
			m, h := good, host{systemID: "alpha"}
			if c.change != nil {
				c.change(&m, &h)
			}
			v := newGroup(t, t.TempDir(), func(o *Options) {
				if c.mode != "" {
					o.Mode = c.mode
				}
			})
			err := v.judge(m, h, c.cmdline)
			if c.is != nil {
				wantErr(t, err, c.is, c.words...)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
