package guest

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// First is for TestMain: as the first process of a kernel it makes that usable, with the modules, runs the tests, and cuts the
// power. Elsewhere it does nothing.
func First(m *testing.M, modules ...string) {
	if os.Getpid() != 1 || os.Getenv(partVariable) == "" {
		return
	}
	fmt.Println(booted)
	err := prepare(modules)
	if err == nil {
		if code := m.Run(); code == 0 {
			fmt.Println(passed)
		}
	}
	if err != nil {
		fmt.Println("GUEST:", err)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// RunPart is for TestGuest: it runs what the machine was started for. Outside a guest there is nothing to run.
func RunPart(t *testing.T, parts map[string]func(*testing.T)) {
	if part := os.Getenv(partVariable); part != "" && os.Getpid() == 1 {
		t.Run(part, parts[part])
	}
}

func prepare(wanted []string) error {
	for _, dir := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"}} {
		if err := unix.Mount(dir[0], dir[1], dir[0], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir[1], err)
		}
	}
	for _, dir := range []string{"/run/lock", "/run/mnt"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	dir := filepath.Join(modules, unix.ByteSliceToString(name.Release[:]))
	needs, err := dependencies(dir)
	if err != nil {
		return err
	}
	for _, module := range wanted {
		if err := load(dir, needs, module); err != nil {
			return fmt.Errorf("module %s: %w", module, err)
		}
	}
	return os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
}

// dependencies reads modules.dep: the files that a module needs, by its name, itself first, the others in the order in which they need each other
// (modules.dep(5)).
func dependencies(dir string) (map[string][]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	needs := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		file, others, _ := strings.Cut(line, ":")
		needs[strings.TrimSuffix(path.Base(file), ".ko")] = append([]string{file}, strings.Fields(others)...)
	}
	return needs, nil
}

func load(dir string, needs map[string][]string, module string) error {
	files := needs[module]
	if files == nil {
		return errors.New("this kernel has none")
	}
	for i := len(files) - 1; i >= 0; i-- {
		f, err := os.Open(filepath.Join(dir, files[i]))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%s: %w", files[i], err)
		}
	}
	return nil
}
