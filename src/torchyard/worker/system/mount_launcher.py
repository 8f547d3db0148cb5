"""Becomes a rank's shell, inside a mount namespace of its own.

Owns: the namespace, the mounts, giving up the rights that could undo them.
Leaves: what is mounted to mounts.py.
Always: it ends by becoming the words it was given, with the same process id; when a mount that
was promised can't be made, nothing of them runs.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_RDONLY = 1
_MS_REMOUNT = 32
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
_MS_RELATIME = 1 << 21
# statvfs tells a mount's flags by the same bits as mount takes them, but for this one.
_ST_SAME = 2 | 4 | 8 | 1024 | 2048
_ST_RELATIME = 4096
_SYS_MOUNT_SETATTR = 442
_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100
_MOUNT_ATTR_RDONLY = 1
_PR_CAPBSET_DROP = 24
_CAP_SYS_ADMIN = 21
_FAILED = 126

libc = ctypes.CDLL(None, use_errno=True)


def main(pairs: str, rights: str, words: list[str]) -> None:
    """Mount and become `words`; with one empty word, only try the mounts and exit 0.

    Args:
        rights: `none` to give up those that could undo the mounts; with `kept` the words are
            become without what can't be mounted, too.
    """
    try:
        own_namespaces()
        for source, target in json.loads(pairs):
            bind_read_only(source, target)
        if rights != "kept":
            give_up_rights()
    except OSError as error:
        if rights != "kept":
            print(f"torchyard: read-only mounts: {error}", file=sys.stderr)
            sys.stderr.flush()
            os._exit(_FAILED)
    if words == [""]:
        os._exit(0)
    become(words)


def become(words: list[str]) -> None:
    """The program `words`, with signals as a program expects them."""
    # Python ignores these; what was started without Python would not.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(words[0], words)


def own_namespaces(as_root: bool = False) -> None:
    """A mount namespace of its own, and one of users where the caller is not root.

    Args:
        as_root: the user is root in there, and not the same as outside.
    """
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        checked("unshare", libc.unshare(_CLONE_NEWNS))
    else:
        # A namespace of its own, where it may mount until it becomes the shell.
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
    checked("mount /", libc.mount(nothing, b"/", nothing, _MS_REC | _MS_PRIVATE, nothing))


def bind(source: str, target: str) -> None:
    """Let `source`, and what is mounted in it, be seen at `target`."""
    at, to = os.fsencode(source), os.fsencode(target)
    nothing = ctypes.c_char_p()
    checked(f"mount {target}", libc.mount(at, to, nothing, _MS_BIND | _MS_REC, nothing))


def bind_read_only(source: str, target: str) -> None:
    """As `bind`, and nothing of it can be written to there."""
    bind(source, target)
    to, nothing = os.fsencode(target), ctypes.c_char_p()
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
    # Before Linux 5.12. A namespace may not drop what the mount has, so that is said again.
    flags = os.statvfs(target).f_flag
    kept = flags & _ST_SAME | (_MS_RELATIME if flags & _ST_RELATIME else 0)
    again = _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept
    checked(f"remount {target}", libc.mount(nothing, to, nothing, again, nothing))


def give_up_rights() -> None:
    """Root that may mount could make it writable again; an ordinary user loses this by exec."""
    if os.geteuid() == 0:
        checked("prctl", libc.prctl(_PR_CAPBSET_DROP, _CAP_SYS_ADMIN, 0, 0, 0))


def checked(what: str, result: int) -> None:
    """
    Raises:
        OSError: the call's answer says that it failed.
    """
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
