// Package netns has tests of clusters whose nodes are cut off, slowed down, stopped and killed: real daemons, each in a
// network namespace of its own, with two links. What is between them, the test decides frame by frame: the wires of
// all nodes end in the test itself, which is the switch. So a cut in one direction, a loss of 30 %, a delay and a
// small MTU need nothing of the kernel but TAP devices.
//
// Whether two nodes ever wrote at once is read from a ledger that all nodes share; no node is asked.
//
// They need root. All of it runs in a PID and a mount namespace of its own: however it ends, the kernel removes what
// is left. The wall clock is the one thing that a namespace does not have of its own: where it steps, a node has a kernel
// of its own, on the same wires.
package netns
