"""Run `yard`, or import modules, in a Python that has lost what Windows and macOS lack of Linux.

`elsewhere.py ARGUMENT…` is `yard ARGUMENT…`; `elsewhere.py --import MODULE…` imports. It is
neither of them: paths, line ends and processes are as they are here.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import socket
import sys
from importlib.abc import MetaPathFinder
from typing import Any

_MODULES = (
    "_curses", "_posixshmem", "crypt", "curses", "fcntl", "grp", "nis", "pty", "pwd", "readline",
    "resource", "spwd", "syslog", "termios", "tty",
)  # fmt: skip
_MISSING: dict[Any, tuple[str, ...]] = {
    os: (
        "O_CLOEXEC", "O_DIRECTORY", "O_NOATIME", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "O_TMPFILE",
        "SCHED_IDLE", "chown", "chroot", "copy_file_range", "eventfd", "fchmod", "fchown", "fork",
        "forkpty", "getegid", "geteuid", "getgid", "getgroups", "getloadavg", "getpgid",
        "getpriority", "getsid", "getuid", "getxattr", "initgroups", "killpg", "lchown",
        "listxattr", "memfd_create", "mkfifo", "mknod", "nice", "openpty", "pidfd_open",
        "posix_fadvise", "posix_fallocate", "pread", "preadv", "pwrite", "sched_getaffinity",
        "sched_setaffinity", "sendfile", "setpgid", "setpriority", "setresuid", "setsid", "setuid",
        "setxattr", "splice", "statvfs", "sysconf",
    ),
    select: ("epoll", "poll"),
    signal: (
        "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP",
        "SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "alarm", "pthread_kill", "pthread_sigmask",
        "setitimer", "sigwait",
    ),
    socket: ("AF_NETLINK", "AF_UNIX", "SO_PEERCRED", "SCM_RIGHTS"),
}  # fmt: skip


class _Hidden(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in _MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide() -> None:
    # What Python's own library has of them stays, or it would not run here.
    for name in ("asyncio", "logging", "multiprocessing", "selectors", "shutil", "subprocess",
                 "tempfile"):  # fmt: skip
        importlib.import_module(name)
    for name in _MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Hidden())
    for module, names in _MISSING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)


def main() -> None:
    hide()
    if sys.argv[1] == "--import":
        for name in sys.argv[2:]:
            importlib.import_module(name)
    else:
        sys.platform = "darwin"
        from torchyard.cli.main import main as yard

        yard()


if __name__ == "__main__":
    main()
