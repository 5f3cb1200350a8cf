package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// prepared is what a program needs to be started.
type prepared struct {
	path string
	argv []string
	env  []string
	who  *account
}

// prepare touches every file that the start needs. The runtime stands still while a
// child is between fork and exec, so a file system that hangs must hang here, where
// it holds but one goroutine.
func (c *command) prepare(ctx context.Context, argv []string, mark string) (prepared, error) {
	path, err := findProgram(argv[0])
	if err != nil {
		return prepared{}, err
	}
	if f, err := os.Open(path); err == nil { // a program may be executable and not readable
		_, _ = f.Read(make([]byte, 1))
		f.Close()
	}
	if err := c.checkWorkDir(); err != nil {
		return prepared{}, err
	}
	who, err := c.opts.account(ctx)
	if err != nil {
		return prepared{}, err
	}
	env, err := c.environ(who, mark)
	if err != nil {
		return prepared{}, err
	}
	return prepared{path, argv, env, who}, nil
}

// errAbsent says that a program or a directory is not on this host.
var errAbsent = errors.New("does not exist on this host, or its file system is not mounted")

// findProgram gives the program's whole path.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil && filepath.IsAbs(path):
		return path, nil
	case err == nil, errors.Is(err, exec.ErrDot):
		return "", fmt.Errorf("%w: PATH leads to %s, which is relative; write the whole path", resources.ErrSetup, path)
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%w: %s %w: it is not in PATH (%s); install it, or write its whole path", resources.ErrNode, name, errAbsent, os.Getenv("PATH"))
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: %s %w", resources.ErrNode, name, errAbsent)
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("%w: %s is not executable; run: chmod +x %s", resources.ErrSetup, name, name)
	}
	return "", fmt.Errorf("program %s: %w", name, err)
}

func (c *command) workDir() string {
	if c.opts.WorkingDirectory == "" {
		return "/"
	}
	return c.opts.WorkingDirectory
}

func (c *command) checkWorkDir() error {
	info, err := os.Stat(c.workDir())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: working directory %s %w", resources.ErrNode, c.workDir(), errAbsent)
	case err != nil:
		return fmt.Errorf("working directory: %w", err)
	case !info.IsDir():
		return fmt.Errorf("%w: working directory %s is no directory", resources.ErrSetup, c.workDir())
	}
	return nil
}

// openLog opens the file for output, or the one that discards it.
func (c *command) openLog() (*os.File, error) {
	path := c.opts.LogFile
	if path == "" {
		path = os.DevNull
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: log file: %w; create its directory", resources.ErrNode, err)
	}
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	return f, nil
}

// Check implements resources.Checker: are the programs, the user, the directories there? What lies on a file system of
// the same group is there only when that is mounted.
func (c *command) Check(ctx context.Context) error {
	return process.Beside(ctx, func() error {
		var errs []error
		for _, argv := range [][]string{c.opts.Run, c.opts.Start, c.opts.Stop, c.opts.Monitor} {
			if len(argv) > 0 {
				_, err := findProgram(argv[0])
				errs = append(errs, err)
			}
		}
		_, err := c.opts.account(ctx)
		errs = append(errs, err, c.checkWorkDir())
		for name, path := range c.opts.EnvironmentFiles {
			if err := checkSecret(path); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
			}
		}
		if dir := filepath.Dir(c.opts.LogFile); c.opts.LogFile != "" {
			if _, err := os.Stat(dir); err != nil {
				errs = append(errs, fmt.Errorf("%w: log file: %w; create its directory", resources.ErrNode, err))
			}
		}
		return errors.Join(errs...)
	})
}

// name is how errors call the resource's program.
func (o *Options) name() string {
	if len(o.Run) > 0 {
		return o.Run[0]
	}
	return o.Start[0]
}
