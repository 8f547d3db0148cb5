#!/bin/bash
# The first process of the virtual machine: cgroups as systemd, the runner and others delegate them.
export PATH=/bin:/usr/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t cgroup2 none /sys/fs/cgroup
top=/sys/fs/cgroup
slice=$top/system.slice

delegate() { for controller in cpu memory pids; do echo "+$controller" > "$1/cgroup.subtree_control"; done; }
given() { mkdir -p "$1" "$2"; chown -R 65534 "$1"; }
as_user() { (echo $BASHPID > "$1/cgroup.procs"; exec setpriv --reuid 65534 --regid 65534 --clear-groups python3 /attempt.py "$2"); }
as_root() { (echo $BASHPID > "$1/cgroup.procs"; exec python3 /attempt.py "$2"); }

as_root $top root
delegate $top
mkdir $slice
delegate $slice
given $slice/torchyard.service $slice/torchyard.service/torchyard-workers
as_user $slice/torchyard.service/torchyard-workers unit
given $slice/old.service $slice/old.service
as_user $slice/old.service old-systemd
given $slice/made $slice/made
as_user $slice/made own-cgroup
mkdir $slice/torchyard-runner.service
delegate $slice/torchyard-runner.service
given $slice/torchyard-runner.service/yard-a-0 $slice/torchyard-runner.service/yard-a-0/torchyard-worker
as_user $slice/torchyard-runner.service/yard-a-0/torchyard-worker runner
mkdir $slice/session.scope
as_root $slice/session.scope root-in-session
echo LEFT "$(find $top -name 'torchyard-node*' | wc -l)"
echo o > /proc/sysrq-trigger
sleep 10
