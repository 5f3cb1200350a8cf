// Command hamgr is the daemon of a cluster and the operator's tool for it. Each verb is a
// small file that parses, asks, prints and ends; nothing is decided here. What tools may
// rely upon is written in docs/cli.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(mainStatus()) }

func mainStatus() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	c := &cli{in: os.Stdin, out: os.Stdout, err: os.Stderr, interactive: isTerminal(os.Stdin)}
	return c.run(ctx, os.Args[1:])
}
