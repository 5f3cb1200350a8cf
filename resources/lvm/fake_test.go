package lvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// Tests with an LVM that lies, hangs and dies, which the real one cannot be made to do: shell scripts, and a tree of files in place of
// sysfs.

const (
	groupUUID = "laf9kz-99jh-HDN7-veoQ-eO7E-Qnma-iyhTNR"
	lv1UUID   = "kfUPR3-QLZr-enY0-15Fr-39Rj-RxlA-ELcgsM"
	lv2UUID   = "CIOpG0-E85X-xFQ9-HxeN-5Syp-z11S-LVQOwt"
)

func short(uuid string) string { return strings.ReplaceAll(uuid, "-", "") }

// fake is a host: its LVM and its devices.
type fake struct {
	testing.TB
	root string
}

// newFake makes a host with a group that is fit to be started and whose programs work.
func newFake(t testing.TB) fake {
	f := fake{t, t.TempDir()}
	for _, program := range []string{"lvm", "dmsetup"} {
		write(t, f.at("bin/"+program), fmt.Sprintf("#!/bin/sh\nroot='%s'\necho \"%s $*\" >> $root/log\n. $root/on/$1\n", f.root, program))
	}
	f.on("systemid", `echo "  system ID: alpha"`)
	f.on("lvmconfig", `printf 'activation {\n\tmonitoring=1\n}\n'`)
	f.report(f.text("alpha", "0", "0"))
	f.on("vgchange", `case "$*" in
*"activate y"*) mv $root/off/* $root/sys ;;
*"activate n"*) mv $root/sys/dm-* $root/off ;;
*systemid*) sed 's/"vg_systemid":"[a-z]*"/"vg_systemid":"alpha"/' $root/report > $root/report.new; mv $root/report.new $root/report ;;
esac`)
	f.on("fullreport", `cat $root/report`)
	f.on("remove", `exit 1`)
	write(t, f.at("sys/sda/dev"), "8:0\n")
	write(t, f.at("dev/sda"), strings.Repeat("x", 8192))
	f.device("off", "dm-3", "vg--x-lv--1", "LVM-"+short(groupUUID)+short(lv1UUID))
	f.device("off", "dm-4", "vg--x-lv2", "LVM-"+short(groupUUID)+short(lv2UUID))
	f.device("sys", "dm-0", "other-lv", "LVM-"+short(lv2UUID)+short(lv1UUID))
	f.device("sys", "dm-1", "vg--x-lv2", "CRYPT-LUKS2-abc") // a name is not enough
	return f
}

func (f fake) at(path string) string        { return filepath.Join(f.root, path) }
func (f fake) on(command, script string)    { write(f, f.at("on/"+command), script+"\n") }
func (f fake) report(text string)           { write(f, f.at("report"), text) }
func (f fake) is(path string) (exists bool) { _, err := os.Stat(f.at(path)); return err == nil }

func (f fake) device(where, kernel, name, uuid string) {
	f.Helper()
	write(f, f.at(where+"/"+kernel+"/dm/name"), name+"\n")
	write(f, f.at(where+"/"+kernel+"/dm/uuid"), uuid+"\n")
	write(f, f.at(where+"/"+kernel+"/dev"), "252:9\n")
	must(f, os.MkdirAll(f.at(where+"/"+kernel+"/holders"), 0o755))
	must(f, os.MkdirAll(f.at(where+"/"+kernel+"/slaves"), 0o755))
	must(f, os.Symlink(f.at("sys/sda"), f.at(where+"/"+kernel+"/slaves/sda")))
}

// text is a report of LVM 2.03.16.
func (f fake) text(systemID, autoactivation, missing string) string {
	return fmt.Sprintf(`  {
      "report": [
          {
              "vg": [
                  {"vg_name":"vg-x", "vg_uuid":"%s", "vg_systemid":"%s", "vg_exported":"0", "vg_clustered":"0", "vg_lock_type":"", "vg_autoactivation":"%s", "vg_missing_pv_count":"%s"}
              ]
              ,
              "pv": [
                  {"pv_name":"/dev/sda", "pv_uuid":"qZWf4F-ib1G-g43K-2q23-aEO7-MNgg-91yC3K", "pv_missing":"%s"}
              ]
              ,
              "lv": [
                  {"lv_name":"lv-1", "lv_uuid":"%s", "lv_role":"public", "lv_skip_activation":"0"},
                  {"lv_name":"lv2", "lv_uuid":"%s", "lv_role":"public,origin,thickorigin", "lv_skip_activation":"0"},
                  {"lv_name":"snap", "lv_uuid":"kfUPR3-QLZr-enY0-15Fr-39Rj-RxlA-ELcgsX", "lv_role":"public,snapshot,thinsnapshot", "lv_skip_activation":"1"},
                  {"lv_name":"[lvol0_pmspare]", "lv_uuid":"kfUPR3-QLZr-enY0-15Fr-39Rj-RxlA-ELcgsY", "lv_role":"private,pool,spare", "lv_skip_activation":"0"}
              ]
              ,
              "pvseg": [
                  {"pv_name":"/dev/sda"}
              ]
              ,
              "seg": [
                  {"lv_name":"lv-1"}
              ]
          }
      ]
  }
`, groupUUID, systemID, autoactivation, missing, missing, lv1UUID, lv2UUID)
}

func (f fake) group(change ...func(*Options)) *volumeGroup {
	must(f, os.MkdirAll(f.at("state"), 0o755))
	change = append([]func(*Options){func(o *Options) { o.CheckDisks = false }}, change...)
	v := newGroup(f, f.at("state"), change...)
	v.sys, v.dev, v.path, v.release = f.at("sys"), f.at("dev"), f.at("bin")+":/usr/bin:/bin", 150*time.Millisecond
	return v
}

// until waits for a condition that must come true.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestLifeWithAFake(t *testing.T) {
	f := newFake(t)
	f.report(f.text("beta", "0", "0"))
	v := f.group()
	ctx := within(t, 60*time.Second)
	wantState(t, v, resources.Inactive)
	must(t, v.Check(ctx))
	if f.is("sys/dm-3") {
		t.Error("a check has activated it")
	}
	must(t, v.Start(ctx))
	wantState(t, v, resources.Active, "on sda")
	log, err := os.ReadFile(f.at("log"))
	must(t, err)
	if want := `local/extra_system_ids=["beta"] --yes --systemid alpha vg-x`; !strings.Contains(string(log), want) {
		t.Errorf("no %q in\n%s", want, log)
	}
	must(t, v.Stop(ctx))
	wantState(t, v, resources.Inactive)
}

// A monitor starts no process.
func TestProbeStartsNothing(t *testing.T) {
	f := newFake(t)
	v := f.group()
	must(t, v.Start(within(t, 60*time.Second)))
	must(t, os.Remove(f.at("log")))
	must(t, os.Remove(f.at("bin/lvm")))
	wantState(t, v, resources.Active)
	wantState(t, f.group(), resources.Active)
	wantState(t, newFake(t).group(), resources.Inactive)
	if f.is("log") {
		t.Error("a program was run")
	}
}

// What LVM calls success proves nothing.
func TestLies(t *testing.T) {
	ctx := within(t, 60*time.Second)
	t.Run("start", func(t *testing.T) {
		f := newFake(t)
		f.on("vgchange", "exit 0")
		wantErr(t, f.group().Start(ctx), nil, "not active: lv-1, lv2")
		f.on("vgchange", "mv $root/off/dm-4 $root/sys; exit 0")
		wantErr(t, f.group().Start(ctx), nil, "not active: lv-1")
	})
	t.Run("take over", func(t *testing.T) {
		f := newFake(t)
		f.report(f.text("beta", "0", "0"))
		f.on("vgchange", "case \"$*\" in *activate*) mv $root/off/* $root/sys ;; esac")
		wantErr(t, f.group().Start(ctx), nil, "take it over from beta", `its system ID is "beta"`)
		if f.is("sys/dm-3") {
			t.Error("activated nevertheless")
		}
	})
	t.Run("stop", func(t *testing.T) {
		f := newFake(t)
		v := f.group()
		must(t, v.Start(ctx))
		f.on("vgchange", "exit 0")
		f.on("remove", "exit 0")
		wantErr(t, v.Stop(ctx), nil, "vg--x-lv--1 is still active", "vg--x-lv2 is still active")
		wantState(t, v, resources.Active)
	})
	t.Run("stop by the kernel", func(t *testing.T) {
		f := newFake(t)
		v := f.group()
		must(t, v.Start(ctx))
		f.on("vgchange", `echo "  Cannot access VG vg-x with system ID beta with local system ID alpha." >&2; exit 5`)
		f.on("remove", `case "$3" in *`+short(lv1UUID)+`) mv $root/sys/dm-3 $root/off ;; *) mv $root/sys/dm-4 $root/off ;; esac`)
		must(t, v.Stop(ctx))
		wantState(t, v, resources.Inactive)
		if !f.is("sys/dm-0") || !f.is("sys/dm-1") {
			t.Error("somebody else's device was removed")
		}
	})
	for name, script := range map[string]string{
		"no system ID":  `echo "  system ID: a b"`,
		"nothing":       `:`,
		"odd system ID": `echo "  system ID: \"]"`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.on("systemid", script)
			wantErr(t, f.group().Start(ctx), nil, "is no system ID")
		})
	}
}

func TestBlame(t *testing.T) {
	ctx := within(t, 60*time.Second)
	f := newFake(t)
	v := f.group()
	f.on("fullreport", `echo '  Volume group "vg-x" not found' >&2; exit 5`)
	wantErr(t, v.Check(ctx), resources.ErrNode, "no such volume group vg-x")
	f.on("fullreport", `echo '  Unrecognised field: vg_autoactivation' >&2; exit 3`)
	wantErr(t, v.Check(ctx), resources.ErrSetup, "older than 2.03.12")
	f.on("fullreport", `echo '  a disk is on fire' >&2; exit 5`)
	wantErr(t, v.Check(ctx), nil, "fullreport", "a disk is on fire")
	must(t, os.Remove(f.at("bin/lvm")))
	v.path = f.at("bin")
	wantErr(t, v.Check(ctx), resources.ErrNode, "apt-get install lvm2")
}

func TestGroupIsFoundByItsUUID(t *testing.T) {
	f := newFake(t)
	v := f.group()
	must(t, v.Start(within(t, 60*time.Second)))
	write(t, f.at("sys/dm-3/dm/name"), "renamed-lv--1\n")
	write(t, f.at("sys/dm-4/dm/name"), "renamed-lv2\n")
	v = f.group()
	wantState(t, v, resources.Active)
	f.on("vgchange", `exit 5`)
	wantErr(t, v.Stop(within(t, 20*time.Second)), nil, "renamed-lv2 is still active")
}

// hang makes the command, and a child of it, block without the processor until the test lets it go on, whatever signal comes; then it
// does its work.
func (f fake) hang(command, work string) {
	must(f, unix.Mkfifo(f.at("gate"), 0o600))
	f.on(command, `trap '' TERM; exec 3<&0; sleep 1000 <&3 3<&- & exec 3<&-; other=$!; echo $$ > $root/hangs; read x < $root/gate; kill -9 $other; `+work)
}

// A command that hangs is killed with all that it has started, and the call comes back with its context.
func TestHang(t *testing.T) {
	for name, call := range map[string]func(*volumeGroup, context.Context) error{"start": (*volumeGroup).Start, "check": (*volumeGroup).Check, "stop": (*volumeGroup).Stop} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			v := f.group()
			command := "fullreport"
			if name == "stop" {
				must(t, v.Start(within(t, 60*time.Second)))
				command = "vgchange"
			}
			f.hang(command, "")
			ctx, cancel := context.WithCancel(within(t, 60*time.Second))
			done := make(chan error, 1)
			go func() { done <- call(v, ctx) }()
			until(t, "it hangs", func() bool { return f.is("hangs") })
			canceled := time.Now()
			cancel()
			err := <-done
			if took := time.Since(canceled); took > 2*time.Second { // 40 ms on a machine that is idle
				t.Errorf("came back after %s", took)
			}
			wantErr(t, err, nil)
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			held, err := v.hold(within(t, 20*time.Second)) // all that had the lock is gone
			must(t, err)
			held.Close()
		})
	}
}

// drop closes what an open file is to the kernel: the command has it, and closing the file would be a race with handing it over.
func (f fake) drop(held *os.File) error {
	f.Cleanup(func() { held.Close() })
	null, err := os.Open(os.DevNull)
	must(f, err)
	defer null.Close()
	return unix.Dup3(int(null.Fd()), int(held.Fd()), unix.O_CLOEXEC)
}

// A command may outlive its call (it hangs in the kernel) or its daemon. Until it is gone nothing is certain and nothing is done.
func TestOrphan(t *testing.T) {
	f := newFake(t)
	v := f.group()
	f.hang("vgchange", "mv $root/off/* $root/sys")
	// What a daemon that is killed leaves: the command, with the lock as its standard input.
	held, err := v.hold(within(t, 20*time.Second))
	must(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := v.run(within(t, 60*time.Second), held, "lvm", "vgchange", "--activate", "y")
		done <- err
	}()
	until(t, "it hangs", func() bool { return f.is("hangs") })
	must(t, f.drop(held))

	next := f.group()
	wantState(t, next, resources.Unknown, "still runs")
	for _, call := range []func(context.Context) error{next.Start, next.Stop, next.Check} {
		wantErr(t, call(within(t, 100*time.Millisecond)), nil, "an earlier LVM command still runs")
	}
	stopped := make(chan error, 1)
	go func() { stopped <- next.Stop(within(t, 60*time.Second)) }()
	f.on("vgchange", "mv $root/sys/dm-[34] $root/off")
	must(t, os.WriteFile(f.at("gate"), []byte("\n"), 0))
	must(t, <-done)
	must(t, <-stopped)
	wantState(t, next, resources.Inactive)
	if f.is("sys/dm-3") {
		t.Error("active after a stop that succeeded")
	}
}
