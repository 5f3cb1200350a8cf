package lvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

func started(t testing.TB, f fake, change ...func(*Options)) *volumeGroup {
	t.Helper()
	v := f.group(change...)
	must(t, v.Start(within(t, 60*time.Second)))
	return v
}

func TestProbeSeesDevices(t *testing.T) {
	f := newFake(t)
	v := started(t, f)
	// A device whose number went to another one is gone.
	must(t, os.Rename(f.at("sys/dm-4"), f.at("dm-4")))
	f.device("sys", "dm-4", "other-lv2", "LVM-"+short(lv2UUID)+short(lv2UUID))
	wantState(t, v, resources.Failed, "not active: lv2")
	must(t, os.RemoveAll(f.at("sys/dm-4")))
	// A volume may come back as another device, and consist of parts.
	f.device("sys", "dm-9", "vg--x-lv2-real", "LVM-"+short(groupUUID)+short(lv2UUID)+"-real")
	wantState(t, v, resources.Active)
	must(t, os.RemoveAll(f.at("sys/dm-3")))
	must(t, os.RemoveAll(f.at("sys/dm-9")))
	wantState(t, v, resources.Inactive)
	must(t, os.RemoveAll(f.at("sys")))
	if state, _, err := v.Probe(within(t, 20*time.Second)); state != resources.Unknown || err == nil {
		t.Errorf("without sysfs: %s %v", state, err)
	}
}

// A volume that is not active is a failure unless LVM says that it is not in the group any more; that LVM cannot tell is no excuse.
func TestRemovedVolume(t *testing.T) {
	f := newFake(t)
	v := started(t, f)
	must(t, os.Rename(f.at("sys/dm-4"), f.at("dm-4")))
	wantState(t, v, resources.Failed, "not active: lv2")
	for _, script := range []string{"exit 5", "echo '{}'", "grep -v '\"lv2\"' $root/report | sed s/" + groupUUID + "/" + lv1UUID + "/"} {
		f.on("fullreport", script)
		wantState(t, v, resources.Failed, "not active: lv2")
	}
	f.on("fullreport", `grep -v '"lv2"' $root/report`)
	wantState(t, v, resources.Active)
	must(t, os.Remove(f.at("bin/lvm")))
	wantState(t, f.group(), resources.Active)
}

func TestProbeSeesDisks(t *testing.T) {
	f := newFake(t)
	v := started(t, f)
	check := f.group(func(o *Options) { o.CheckDisks = true })
	wantState(t, check, resources.Active, "on sda")
	must(t, os.Remove(f.at("dev/sda")))
	wantState(t, check, resources.Failed, "/dev/sda: no such file")
	write(t, f.at("dev/sda"), "short")
	wantState(t, check, resources.Failed, "read disk")
	wantState(t, v, resources.Active)
	// A volume may have moved to another disk.
	must(t, os.RemoveAll(f.at("sys/sda")))
	wantState(t, v, resources.Failed, "disk sda of vg--x-lv--1 is gone")
	write(t, f.at("sys/sdb/dev"), "8:16\n")
	for _, dm := range []string{"dm-3", "dm-4"} {
		must(t, os.Remove(f.at("sys/"+dm+"/slaves/sda")))
		must(t, os.Symlink(f.at("sys/sdb"), f.at("sys/"+dm+"/slaves/sdb")))
	}
	wantState(t, v, resources.Active, "on sdb")
	must(t, os.Symlink(f.at("sys/dm-3"), f.at("sys/dm-4/slaves/dm-3"))) // a part of the group is no disk
	wantState(t, v, resources.Active, "on sdb")
}

// A disk that hangs holds one goroutine, and no caller.
func TestProbeOfADiskThatHangs(t *testing.T) {
	f := newFake(t)
	v := started(t, f, func(o *Options) { o.CheckDisks = true })
	hung := make(chan error, 1)
	v.reading = hung
	for range 2 {
		state, _, err := v.Probe(within(t, 20*time.Millisecond))
		if state != resources.Unknown || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s %v", state, err)
		}
	}
	hung <- nil
	wantState(t, v, resources.Active)
	wantState(t, v, resources.Active)
}

// The host has 100 mapped devices, ten of which are the group's.
func BenchmarkProbe(b *testing.B) {
	f := newFake(b)
	for i := range 100 {
		vg, uuid := "other", short(lv2UUID)
		if i < 10 {
			vg, uuid = "vg--x", short(groupUUID)
		}
		f.device("sys", fmt.Sprintf("dm-%d", 100+i), fmt.Sprintf("%s-%d", vg, i), fmt.Sprintf("LVM-%s%s%02d", uuid, short(lv1UUID)[:30], i))
	}
	for name, known := range map[string]bool{"Monitor": true, "AllDevices": false} {
		b.Run(name, func(b *testing.B) {
			v := f.group()
			v.opts.CheckDisks = known
			for b.Loop() {
				if !known {
					v.seen = nil
				}
				if state, detail, err := v.Probe(b.Context()); state != resources.Active {
					b.Fatal(state, detail, err)
				}
			}
		})
	}
}
