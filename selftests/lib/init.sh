#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# First user-space program of a test machine. The initramfs (or the image's
# /sbin/labinit) has mounted /proc, /sys, /dev and this share on /host.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
HOME=/root
export PATH HOME
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t configfs configfs /sys/kernel/config 2>/dev/null
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null

while :; do
	python3 -E -s -S /host/selftests/lib/agent.py
	echo "init: agent ended with $?" >/dev/console
	sleep 1
done &

if grep -qw lab.shell /proc/cmdline; then
	tty=/dev/$(cat /sys/class/tty/console/active)
	while :; do
		setsid -c bash --rcfile /host/selftests/lib/shellrc -i <>"$tty" >&0 2>&1
	done
fi
# The shell reaps orphans while it waits.
while :; do
	wait
	sleep 3600
done
