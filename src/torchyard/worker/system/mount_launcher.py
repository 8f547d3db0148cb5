"""Start a rank's shell in a mount namespace of its own, by exec.

Owns: the namespace, the mounts, dropping the capabilities that could undo them.
Leaves: what is mounted to mounts.py.
Always: it ends by executing the given command with the same process id; when a required mount
can't be made, the command does not run.
"""

from __future__ import annotations

# Nothing else: each of `json` and `signal` would take every rank's start milliseconds.
import ctypes
import os
import sys

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_RDONLY = 1
_MS_REMOUNT = 32
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
_MS_SLAVE = 1 << 19
_MS_RELATIME = 1 << 21
# statvfs returns a mount's flags as the bits that mount takes, except for the second one.
_ST_SAME = 2 | 4 | 8 | 1024 | 2048
_ST_RELATIME = 4096
_SYS_MOUNT_SETATTR = 442
_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100
_MOUNT_ATTR_RDONLY = 1
_PR_CAPBSET_DROP = 24
_CAP_SYS_ADMIN = 21
_FAILED = 126
_SIGPIPE, _SIGXFSZ = 13, 25

libc = ctypes.CDLL(None, use_errno=True)


def main(count: str, capabilities: str, words: list[str]) -> None:
    """Mount, and execute a command; if it is one empty word, only try the mounts and exit 0.

    Args:
        count: how many mounts there are.
        capabilities: `none` to drop those that could undo the mounts; with `kept` the command
            runs even if the mounts can't be made.
        words: source and target of each mount, then the command.
    """
    paths, command = words[: 2 * int(count)], words[2 * int(count) :]
    try:
        own_namespaces()
        for source, target in zip(paths[::2], paths[1::2]):
            bind_read_only(source, target)
        if capabilities != "kept":
            give_up_rights()
    except OSError as error:
        if capabilities != "kept":
            print(f"torchyard: read-only mounts: {error}", file=sys.stderr)
            sys.stderr.flush()
            os._exit(_FAILED)
    if command == [""]:
        os._exit(0)
    become(command)


def become(command: list[str]) -> None:
    """Execute `command` in place of this process, with the signals that a program expects."""
    # Python ignores these, and a program that Python starts would, too.
    for ignored in (_SIGPIPE, _SIGXFSZ):
        libc.signal(ignored, ctypes.c_void_p())
    os.execv(command[0], command)


def own_namespaces(as_root: bool = False) -> None:
    """Enter a new mount namespace, and a user namespace where the caller is not root.

    What the machine mounts and unmounts later is mounted and unmounted inside, too, but not the
    other way round.

    Args:
        as_root: be root inside, instead of the same user as outside.
    """
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        checked("unshare", libc.unshare(_CLONE_NEWNS))
    else:
        # In a user namespace of its own it may mount until it executes the shell.
        inside = (0, 0) if as_root else (user, group)
        checked("unshare", libc.unshare(_CLONE_NEWNS | _CLONE_NEWUSER))
        for file, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{inside[0]} {user} 1"),
            ("gid_map", f"{inside[1]} {group} 1"),
        ):
            with open(f"/proc/self/{file}", "w") as writer:
                writer.write(text)
    nothing = ctypes.c_char_p()
    checked("mount /", libc.mount(nothing, b"/", nothing, _MS_REC | _MS_SLAVE, nothing))


def bind(source: str, target: str) -> None:
    """Mount `source`, with the mounts inside it, at `target`."""
    source_path, target_path = os.fsencode(source), os.fsencode(target)
    nothing = ctypes.c_char_p()
    checked(
        f"mount {target}",
        libc.mount(source_path, target_path, nothing, _MS_BIND | _MS_REC, nothing),
    )


def bind_read_only(source: str, target: str) -> None:
    """As `bind`, read-only."""
    bind(source, target)
    to, nothing = os.fsencode(target), ctypes.c_char_p()
    # What the machine mounts below it later would be writable.
    private = _MS_REC | _MS_PRIVATE
    checked(f"mount {target}", libc.mount(nothing, to, nothing, private, nothing))
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    done = libc.syscall(
        _SYS_MOUNT_SETATTR,
        ctypes.c_int(_AT_FDCWD),
        to,
        ctypes.c_uint(_AT_RECURSIVE),
        attributes,
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    if done == 0:
        return
    # Before Linux 5.12. A namespace may not drop flags that the mount has, so they are repeated.
    flags = os.statvfs(target).f_flag
    kept_flags = flags & _ST_SAME | (_MS_RELATIME if flags & _ST_RELATIME else 0)
    again = _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept_flags
    checked(f"remount {target}", libc.mount(nothing, to, nothing, again, nothing))


def give_up_rights() -> None:
    """Root could make the mounts writable again; an ordinary user loses the capability by exec."""
    if os.geteuid() == 0:
        checked("prctl", libc.prctl(_PR_CAPBSET_DROP, _CAP_SYS_ADMIN, 0, 0, 0))


def checked(action: str, result: int) -> None:
    """
    Raises:
        OSError: the call failed.
    """
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")
