package lvm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/resourcetest"
)

// TestConformance: an LVM of shell scripts, whose devices are files; these are the judge. That the real one is like it,
// the tests in a kernel of its own tell.
func TestConformance(t *testing.T) {
	resourcetest.Run(t, resourcetest.Subject{Kind: Kind(), Host: func(t testing.TB) *resourcetest.Host {
		f := newFake(t)
		// As the real one, it does nothing to what is active already.
		f.on("vgchange", `case "$*" in
*"activate y"*) [ ! -e $root/off/dm-3 ] || { mv $root/off/* $root/sys; echo >> $root/activations; } ;;
*"activate n"*) mv $root/sys/dm-[34] $root/off ;;
esac`)
		honest := map[string]string{}
		for _, command := range []string{"vgchange", "fullreport", "remove", "systemid"} {
			text, err := os.ReadFile(f.at("on/" + command))
			must(t, err)
			honest[command] = strings.TrimSuffix(string(text), "\n")
		}
		// during has commands run something else, which may go on to what is right.
		during := func(script string, commands ...string) resourcetest.Fault {
			return resourcetest.Fault{
				Begin: func() {
					for _, c := range commands {
						f.on(c, script+"\n"+honest[c])
					}
				},
				End: func() {
					for _, c := range commands {
						f.on(c, honest[c])
					}
				},
			}
		}
		reported := func(systemID, autoactivation, missing string) resourcetest.Fault {
			return resourcetest.Fault{
				Begin: func() { f.report(f.text(systemID, autoactivation, missing)) },
				End:   func() { f.report(f.text("alpha", "0", "0")) },
			}
		}
		hang := func(calls []string, commands ...string) resourcetest.Hang {
			return resourcetest.Hang{Fault: during("trap '' TERM; sleep 60", commands...), Calls: calls}
		}
		away := func(path string) resourcetest.Fault {
			return resourcetest.Fault{
				Begin: func() { must(t, os.Rename(f.at(path), f.at(path+".away"))) },
				End:   func() { must(t, os.Rename(f.at(path+".away"), f.at(path))) },
			}
		}
		return &resourcetest.Host{
			New: func(env resources.Env) (resources.Resource, error) {
				o := Kind().Options().(*Options)
				o.VolumeGroup, o.CheckDisks = "vg-x", false
				r, err := o.New(env)
				if err != nil {
					return nil, err
				}
				v := r.(*volumeGroup)
				v.sys, v.dev, v.path, v.release = f.at("sys"), f.at("dev"), f.at("bin")+":/usr/bin:/bin", 150*time.Millisecond
				return v, nil
			},
			Active: func() []string {
				found, err := filepath.Glob(f.at("sys*") + "/dm-[34]")
				must(t, err)
				if len(found) == 0 {
					return nil
				}
				activations, _ := os.ReadFile(f.at("activations"))
				return []string{fmt.Sprintf("activation %d", len(activations))}
			},
			Picture: func() string {
				log, _ := os.ReadFile(f.at("log")) // not there at first
				return fmt.Sprint(strings.Count(string(log), "vgchange"), strings.Count(string(log), "remove"))
			},
			Kill: func() {
				for _, device := range []string{"dm-3", "dm-4"} {
					must(t, os.Rename(f.at("sys/"+device), f.at("off/"+device)))
				}
			},
			Troubles: map[string]resourcetest.Trouble{
				"a disk is missing":        {Fault: reported("alpha", "0", "1"), Is: resources.ErrNode},
				"the host may activate it": {Fault: reported("alpha", "1", "0"), Is: resources.ErrSetup},
				"there is no such group":   {Fault: during(`echo '  Volume group "vg-x" not found' >&2; exit 5`, "fullreport"), Is: resources.ErrNode},
				"LVM is too old":           {Fault: during(`echo '  Unrecognised field: vg_autoactivation' >&2; exit 3`, "fullreport"), Is: resources.ErrSetup},
				"LVM only says so":         {Fault: during("exit 0", "vgchange"), Late: true},
				"LVM fails":                {Fault: during("echo '  a disk is on fire' >&2; exit 5", "vgchange"), Late: true},
			},
			Hangs: map[string]resourcetest.Hang{
				"the report":     hang([]string{"start", "check"}, "fullreport"),
				"the activation": hang([]string{"start", "stop"}, "vgchange"),
			},
			Blind: map[string]resourcetest.Fault{"no sysfs": away("sys")},
			Stuck: map[string]resourcetest.Fault{
				"LVM only says so": during("exit 0", "vgchange", "remove"),
				"LVM fails":        during("exit 5", "vgchange", "remove"),
				"LVM hangs":        during("trap '' TERM; sleep 60", "vgchange"),
			},
			Patience: 20 * time.Second, Operations: 40,
		}
	}})
}
