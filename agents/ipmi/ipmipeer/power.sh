#!/bin/sh
# power.sh FOLDER ARGUMENTS...
#
# What ipmi_sim runs (chassis_control) to read and switch the power of its machine. FOLDER/power
# has the state. FOLDER/calls gets a line for each change that was asked for. FOLDER/command, if
# not empty, is run as COMMAND on|off|status and is the machine then. FOLDER/mode has the fault.
dir=$1; shift
cmd= mode= delay=
[ -s "$dir/command" ] && read -r cmd <"$dir/command"
[ -s "$dir/mode" ] && read -r mode delay <"$dir/mode"

apply() {
	if [ -n "$cmd" ]; then $cmd "$1" >>"$dir/command.log" 2>&1 || return 1; fi
	case $1 in on|off) echo "$1" >"$dir/power.$$" && mv "$dir/power.$$" "$dir/power" ;; esac
}

state() {
	if [ -n "$cmd" ]; then s=$($cmd status 2>>"$dir/command.log") || return 1; else read -r s <"$dir/power"; fi
	case $s in on) echo power:1 ;; off) echo power:0 ;; *) return 1 ;; esac
}

change() {
	echo "$(date +%s.%N) $1" >>"$dir/calls"
	case $mode in
	stuck) return 0 ;;
	refuse) return 1 ;;
	fail) apply "$1"; return 1 ;;
	slow) sleep "$delay"; apply "$1" ;;
	lag) (sleep "$delay"; apply "$1") >/dev/null 2>&1 </dev/null & return 0 ;;
	*) apply "$1" ;;
	esac
}

case "$*" in
"get power") [ "$mode" != blind ] && state ;;
"set power 1") change on ;;
"set power 0") change off ;;
"set reset "*) change reset ;;
"set shutdown "*) change off ;;
get*) shift; for k; do [ "$k" = get ] || echo "$k:0"; done ;;
esac
