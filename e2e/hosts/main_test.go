//go:build systemdhost

package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// programs is a folder with the programs under test and of the test, as they are put on each host.
var programs string

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case writerName: // on a host
		os.Exit(write(os.Args[1:]))
	case janitorName:
		os.Exit(janitor(os.Args[1]))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "hosts with a systemd of their own need root")
		return 1
	}
	if err := sweepStale(); err != nil {
		fmt.Fprintln(os.Stderr, "what earlier tests left:", err)
		return 1
	}
	var err error
	if programs, err = os.MkdirTemp("", labPrefix+"programs-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	lock, err := claim(programs)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	leave, err := hire(programs)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		os.RemoveAll(programs)
		lock.Close()
		leave()
	}()
	build := exec.Command("go", "build", "-o", filepath.Join(programs, "hamgr"), "../../cmd/hamgr")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build hamgr:", err)
		return 1
	}
	status := m.Run()
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}
