# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Functions for scripts run by `lab try`.

# load [-c] NAME [PARAMETER=VALUE]...: insert a module and what it needs
load() {
	case $1 in
	rtrs_core) modprobe -a ib_core rdma_cm ;;
	rtrs_client | rtrs_server) [ -d /sys/module/rtrs_core ] || load rtrs_core ;;
	rnbd_client) [ -d /sys/module/rtrs_client ] || load rtrs_client ;;
	rnbd_server) [ -d /sys/module/rtrs_server ] || load rtrs_server ;;
	esac
	for _file in "$MODULES/$1.ko" "$MODULES/$(echo "$1" | tr _ -).ko"; do
		if [ -f "$_file" ]; then
			shift
			insmod "$_file" "$@"
			return
		fi
	done
	echo "load: no $1 in $MODULES" >&2
	return 1
}

# unload: remove all modules, users first
unload() {
	for _name in rnbd_client rtrs_client rnbd_server rtrs_server rtrs_core; do
		[ ! -d "/sys/module/$_name" ] || rmmod "$_name" || return
	done
}

# map DEVICE [SESSION [OPTION...]]: map a server's device
map() {
	_device=$1
	_session=${2:-sess}
	shift "$(($# < 2 ? 1 : 2))"
	printf 'sessname=%s path=ip:%s device_path=%s %s' "$_session" "$SERVER" "$_device" "$*" \
		>/sys/class/rnbd-client/ctl/map_device
}

# unmap NAME [normal|force]: e.g. unmap rnbd0
unmap() {
	printf '%s' "${2:-normal}" >"/sys/block/$1/rnbd/unmap_device"
}

# sessions: every file of the session and path directories with its text
sessions() {
	for _file in $(find /sys/class/rtrs-client/ /sys/class/rtrs-server/ /sys/block/rnbd*/rnbd \
		-follow -maxdepth 6 -type f 2>/dev/null | grep -v -e /power/ -e uevent -e /queue/); do
		printf '%s: %s\n' "$_file" "$(head -3 "$_file" 2>&1)"
	done
}
