package netns

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The test runs as three processes, one below the other: the one that go test starts, the first process of the
// namespaces, and the test itself.
const (
	stageVariable = "HAMGR_NETNS_STAGE"
	stageFirst    = "first"
	stageTest     = "test"
)

// programs is a folder with the programs under test and of the test. It is in memory, and seen by the test alone.
const programs = "/dev/shm/programs"

var hamgr = filepath.Join(programs, "hamgr")

// long is for the cuts that are too long for every day.
var long = flag.Bool("long", false, "cuts of 45 and 600 seconds too")

func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case name == fenceName:
		os.Exit(fence(os.Stdin, os.Stdout))
	case name == switchName:
		os.Exit(press(os.Args[1:], os.Stdout))
	case name == guestName && os.Getpid() == 1:
		os.Exit(firstOfGuest())
	case os.Getuid() != 0:
		fmt.Fprintln(os.Stderr, "network namespaces need root")
		os.Exit(1)
	}
	switch os.Getenv(stageVariable) {
	case stageFirst:
		os.Exit(first())
	case stageTest:
		os.Exit(run(m))
	default:
		os.Exit(enter())
	}
}

// enter runs this program again in namespaces of its own, and ends as it ends. If it is killed, all of that is.
func enter() int {
	cmd := again(stageFirst)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return statusOf(cmd.Run())
}

func again(stage string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stageVariable+"="+stage)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

func statusOf(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// first is the first process of the namespaces. It mounts what belongs to them, starts the test, and reaps whom
// nobody else does, as the first process of a host does. With it all others end.
func first() int {
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
		unix.Mount("netns", "/dev/shm", "tmpfs", 0, "mode=1777"),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mount:", err)
		return 1
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-interrupted
		os.Exit(1)
	}()
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, "build hamgr:", err)
		return 1
	}
	cmd := again(stageTest)
	if err := startUrgent(cmd); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		var status unix.WaitStatus
		switch pid, err := unix.Wait4(-1, &status, 0, nil); {
		case err != nil && err != unix.EINTR:
			fmt.Fprintln(os.Stderr, "wait:", err)
			return 1
		case pid != cmd.Process.Pid:
		case status.Exited():
			return status.ExitStatus()
		default:
			fmt.Fprintln(os.Stderr, "the test ended by", status.Signal())
			return 1
		}
	}
}

// startUrgent starts the test, and with it all daemons, so that what they do comes before what else the machine does: the
// test is their network, and a network does not wait until its hosts have nothing else to do.
//
// It takes from the daemons the right to real-time scheduling. Those of all nodes share the machine's processors here, and
// a real-time thread that waits busily in the kernel for an ordinary one (release_task does, while others read /proc)
// then keeps it from its turn for half a minute.
func startUrgent(cmd *exec.Cmd) error {
	runtime.LockOSThread() // for ever: nothing else shall run on it
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20); err != nil {
		fmt.Fprintln(os.Stderr, "no priority, so a busy machine may look like a bad network:", err)
	}
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_NICE, 0, 0, 0); err != nil {
		return fmt.Errorf("drop CAP_SYS_NICE: %w", err)
	}
	return cmd.Start()
}

func run(m *testing.M) int {
	flag.Parse()
	// They wait most of the time, so more than two a processor; but a daemon's work is never put off, and too many that start
	// at once leave each other no time to shake hands.
	flag.Set("test.parallel", fmt.Sprint(2*runtime.NumCPU()+1))
	status := m.Run()
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// build puts the programs into their folder. The daemons watch themselves for races as the test does.
func build() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	err = errors.Join(
		os.Mkdir(programs, 0o755),
		os.Symlink(self, filepath.Join(programs, fenceName)),
		os.Symlink(self, filepath.Join(programs, switchName)),
		os.Symlink(self, filepath.Join(programs, guestName)),
	)
	if err != nil {
		return err
	}
	args := []string{"build", "-o", hamgr}
	cgo := "CGO_ENABLED=0"
	if raceDetector {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	cmd := exec.Command("go", append(args, "../../cmd/hamgr")...)
	cmd.Env = append(os.Environ(), cgo)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}
