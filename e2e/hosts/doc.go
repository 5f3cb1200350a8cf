// Package hosts has tests of clusters of whole hosts: each a Debian with a real systemd as the first process of
// namespaces of its own, with hamgr.service on it, on one bridge, with a disk that all share, and with power
// that a BMC (OpenIPMI's ipmi_sim) and a PDU (net-snmp's snmpd) switch. What power is cut of is lost: all that runs on the host, and
// what it had not written to the disk.
//
// They need root, and the build tag systemdhost: make hosts. All that they make on the machine is named by
// their folder below TMPDIR, and is gone at their end, also when they are killed (sweep).
//
// One kernel runs all hosts. So its clock is theirs, which is what makes times of different hosts comparable here; they
// have no hardware watchdog; and memory, CPU and processes are not limited.
package hosts
