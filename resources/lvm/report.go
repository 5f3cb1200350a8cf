package lvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/hamgr/hamgr/resources"
)

// metadata is what LVM reads of the group from its disks.
type metadata struct {
	uuid     string // without hyphens, as in sysfs
	systemID string
	lockType string

	exported, clustered, autoactivated bool

	missing []string // disks that are not on this host
	volumes []volume // those that an activation of the group activates
}

// volume is a logical volume.
type volume struct {
	Name string `json:"name"`
	UUID string `json:"uuid"` // without hyphens, as in sysfs
}

var errNoGroup = errors.New("no such volume group")

// read reads the group's metadata, whoever's system ID it has.
func (v *volumeGroup) read(ctx context.Context, held *os.File) (metadata, error) {
	out, err := v.lvm(ctx, held, "fullreport", "", "--reportformat", "json", "--foreign", "--binary",
		"--configreport", "vg", "-o", "vg_name,vg_uuid,vg_systemid,vg_exported,vg_clustered,vg_lock_type,vg_autoactivation,vg_missing_pv_count",
		"--configreport", "pv", "-o", "pv_name,pv_uuid,pv_missing",
		"--configreport", "lv", "-o", "lv_name,lv_uuid,lv_role,lv_skip_activation",
		"--configreport", "pvseg", "-o", "pv_name", "--configreport", "seg", "-o", "lv_name",
		v.name())
	var failed *failure
	if errors.As(err, &failed) {
		switch {
		case strings.Contains(failed.says, `"`+v.name()+`" not found`):
			return metadata{}, v.absent()
		case strings.Contains(strings.ToLower(failed.says), "unrecognised field"):
			return metadata{}, fmt.Errorf("%w: this host's LVM is older than 2.03.12, which cannot keep a host from activating the group by itself; upgrade it", resources.ErrSetup)
		}
	}
	if err != nil {
		return metadata{}, err
	}
	m, err := parseReport(out, v.name())
	if errors.Is(err, errNoGroup) {
		return metadata{}, v.absent()
	}
	return m, err
}

func (v *volumeGroup) absent() error {
	return fmt.Errorf("%w: %w %s on this node: its disks are not here, or lvm.conf or LVM's devices file (lvmdevices) hides them", resources.ErrNode, errNoGroup, v.name())
}

// parseReport reads the report of one group in LVM's format json (lvmreport(7)), where every value is a string.
func parseReport(b []byte, name string) (metadata, error) {
	var report struct {
		Report []struct {
			VG, PV, LV []map[string]string
		}
	}
	if err := json.Unmarshal(b, &report); err != nil {
		return metadata{}, fmt.Errorf("report of LVM: %w", err)
	}
	var m metadata
	for _, r := range report.Report {
		for _, vg := range r.VG {
			if vg["vg_name"] != name {
				return metadata{}, fmt.Errorf("report of LVM: it is of the group %q", vg["vg_name"])
			}
			if m.uuid != "" {
				return metadata{}, fmt.Errorf("%w: two volume groups have the name %s; rename one by its UUID: vgrename %s NEWNAME", resources.ErrSetup, name, vg["vg_uuid"])
			}
			if err := m.group(vg); err != nil {
				return metadata{}, err
			}
		}
		for _, pv := range r.PV {
			missing, err := flag(pv, "pv_missing")
			if err != nil {
				return metadata{}, err
			}
			if missing {
				m.missing = append(m.missing, pv["pv_uuid"])
			}
		}
		if err := m.add(r.LV); err != nil {
			return metadata{}, err
		}
	}
	if m.uuid == "" {
		return metadata{}, errNoGroup
	}
	return m, nil
}

func (m *metadata) group(vg map[string]string) (err error) {
	if m.uuid, err = shortUUID(vg["vg_uuid"]); err != nil {
		return err
	}
	var errs [4]error
	m.exported, errs[0] = flag(vg, "vg_exported")
	m.clustered, errs[1] = flag(vg, "vg_clustered")
	m.autoactivated, errs[2] = flag(vg, "vg_autoactivation")
	var ok [2]bool
	m.systemID, ok[0] = vg["vg_systemid"]
	m.lockType, ok[1] = vg["vg_lock_type"]
	missing, found := vg["vg_missing_pv_count"]
	if err := errors.Join(errs[:]...); err != nil || !ok[0] || !ok[1] || !found {
		return errors.Join(err, errors.New("report of LVM: not all that was asked for"))
	}
	if missing != "0" {
		m.missing = []string{} // their UUIDs follow
	}
	return nil
}

// add takes the volumes that an activation of the whole group activates: not the parts of others, and not those flagged to be skipped.
func (m *metadata) add(lvs []map[string]string) error {
	for _, lv := range lvs {
		skip, err := flag(lv, "lv_skip_activation")
		if err != nil {
			return err
		}
		public := false
		for role := range strings.SplitSeq(lv["lv_role"], ",") {
			public = public || role == "public"
		}
		if skip || !public {
			continue
		}
		uuid, err := shortUUID(lv["lv_uuid"])
		if err != nil {
			return err
		}
		m.volumes = append(m.volumes, volume{Name: lv["lv_name"], UUID: uuid})
	}
	return nil
}

// flag reads a field of an option --binary report. A field that is missing or odd is no "no".
func flag(row map[string]string, field string) (bool, error) {
	switch value := row[field]; value {
	case "0":
		return false, nil
	case "1":
		return true, nil
	default:
		return false, fmt.Errorf("report of LVM: %s is %q", field, value)
	}
}

func shortUUID(s string) (string, error) {
	short := strings.ReplaceAll(s, "-", "")
	if !isUUID(short) {
		return "", fmt.Errorf("report of LVM: %q is no UUID", s)
	}
	return short, nil
}

func isUUID(s string) bool {
	for _, c := range []byte(s) {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') {
			return false
		}
	}
	return len(s) == uuidLen
}

// host is what matters of this host's LVM configuration.
type host struct {
	systemID string
	extra    []string // local/extra_system_ids: whose groups it uses as its own
	filtered bool     // activation/volume_list is there
	allowed  []string // what it lists
}

func (v *volumeGroup) host(ctx context.Context, held *os.File) (host, error) {
	var h host
	out, err := v.lvm(ctx, held, "systemid", "")
	if err != nil {
		return h, err
	}
	if h.systemID, err = parseSystemID(out); err != nil {
		return h, err
	}
	// Neither key has a default; asked for by name, lvmconfig fails where one is not set.
	if out, err = v.lvm(ctx, held, "lvmconfig", "", "--typeconfig", "current", "--mergedconfig"); err != nil {
		return h, err
	}
	h.allowed, h.filtered, err = parseList(out, "volume_list")
	if err != nil {
		return h, err
	}
	h.extra, _, err = parseList(out, "extra_system_ids")
	return h, err
}

// systemID is what LVM makes of any string that it is given as one (lvmsystemid(7)).
var systemID = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`)

// parseSystemID reads the output of lvm systemid: "  system ID: alpha", and nothing after the colon if there is none.
func parseSystemID(b []byte) (string, error) {
	label, id, found := strings.Cut(strings.TrimSpace(string(b)), ":")
	id = strings.TrimSpace(id)
	if !found || strings.TrimSpace(label) != "system ID" || id != "" && !systemID.MatchString(id) {
		return "", fmt.Errorf("lvm systemid: %q is no system ID", b)
	}
	return id, nil
}

// parseList reads a list of strings, which LVM writes on one line: key=["a","b"], or key="a", or key=[].
func parseList(b []byte, key string) (list []string, found bool, err error) {
	for line := range strings.Lines(string(b)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.TrimSpace(name) != key {
			continue
		}
		value = strings.TrimSpace(value)
		if !strings.HasPrefix(value, "[") {
			value = "[" + value + "]"
		}
		list = nil                                                   // the last one counts
		if err := json.Unmarshal([]byte(value), &list); err != nil { // the same syntax for such lists
			return nil, true, fmt.Errorf("%s of lvm.conf: %q is no list of strings", key, value)
		}
		found = true
	}
	return list, found, nil
}
