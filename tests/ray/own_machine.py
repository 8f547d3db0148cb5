"""A machine on this one: its own network stack, file system root, processes and ordinary user.

Owns: the root, made of /usr and the programs under test as read-only binds, with an /etc, /home and
/tmp of its own; starting programs there as its user, cutting its cable, switching it off.
Leaves: the wire between machines to end_to_end/namespaces.py.
Always: it sees nothing of the server's home or this machine's /tmp; what runs there ends with its
first process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torchyard
from end_to_end.namespaces import Site

USER, USER_ID = "ada", 61_234
_HOME = f"/home/{USER}"
_SOURCE = Path(torchyard.__file__).resolve().parents[1]
# In a mount namespace and as the first process of a pid namespace.
_ENTER = """\
set -e
root=$1; id=$2; shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
while read -r place; do
  mount --bind "$place" "$root$place"
  mount -o remount,bind,ro "$root$place"
done < "$root/etc/binds"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in null zero full random urandom tty; do
  : > "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -m 1777 "$root/dev/shm"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
cd "$root"
pivot_root . before
umount -l /before
cd /
# It stays, and reaps what others leave.
setpriv --reuid "$id" --regid "$id" --clear-groups --no-new-privs -- "$@" &
child=$!
trap 'kill -TERM "$child"' TERM
code=0
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
exit "$code"
"""


class OwnMachine:
    """
    Args:
        folder: keeps the root, also while the machine is off.
        network, number: its place on the wire.
        programs: more folders that it has, read-only and at their own paths.
    """

    def __init__(
        self, folder: Path, network: Site, number: int, programs: Sequence[Path] = ()
    ) -> None:
        self.root = folder / f"root-{number}"
        self.name = f"far-{number}"
        self.address = network.addresses[number]
        self._namespace = network.names[number]
        self._wire = f"ty{os.getpid()}w{number}"
        self._make([Path("/usr"), Path(sys.prefix), Path(sys.base_prefix), _SOURCE, *programs])
        route = ("route", "add", "default", "via", network.server_address)
        subprocess.run(["ip", "-n", self._namespace, *route], check=True)

    @property
    def home(self) -> Path:
        """Its user's, seen from here."""
        return self.root / _HOME[1:]

    def _make(self, binds: Sequence[Path]) -> None:
        root = self.root
        for name in ("etc", "home", "proc", "dev", "before", "var", "run", "sys"):
            (root / name).mkdir(parents=True)
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o1777)
        for name in ("bin", "lib", "lib64", "sbin"):
            if Path("/", name).is_symlink():
                (root / name).symlink_to(os.readlink(f"/{name}"))
        # A place inside another is there with it.
        outermost = [
            folder
            for folder in dict.fromkeys(binds)
            if not any(folder != other and folder.is_relative_to(other) for other in binds)
        ]
        for folder in outermost:
            (root / str(folder)[1:]).mkdir(parents=True, exist_ok=True)
        etc = root / "etc"
        (etc / "binds").write_text("".join(f"{folder}\n" for folder in outermost))
        (etc / "passwd").write_text(
            f"root:x:0:0::/root:/bin/sh\n{USER}:x:{USER_ID}:{USER_ID}::{_HOME}:/bin/sh\n"
        )
        (etc / "group").write_text(f"root:x:0:\n{USER}:x:{USER_ID}:\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n")
        (etc / "hostname").write_text(f"{self.name}\n")
        shutil.copy("/etc/ld.so.cache", etc)
        self.home.mkdir(mode=0o700)
        os.chown(self.home, USER_ID, USER_ID)

    def give(self, name: str, text: str) -> str:
        """A file in its user's home that only they read; its path there."""
        file = self.home / name
        file.touch(mode=0o600)
        file.write_text(text)
        os.chown(file, USER_ID, USER_ID)
        return f"{_HOME}/{name}"

    def start(
        self, words: Sequence[str], log: Path, environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Switch it on, with one program of its user; it is off when that has ended."""
        variables = {
            "HOME": _HOME,
            "USER": USER,
            "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            **(environ or {}),
        }
        script = f"hostname {self.name}\n{_ENTER}"
        assignments = [f"{name}={text}" for name, text in variables.items()]
        with open(log, "ab") as output:
            return subprocess.Popen(
                [
                    *("ip", "netns", "exec", self._namespace),
                    *("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"),
                    *("sh", "-c", script, "sh", str(self.root), str(USER_ID)),
                    *("env", "-i", *assignments, *words),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def plug(self, is_in: bool) -> None:
        """Pull the cable, or put it back."""
        state = "up" if is_in else "down"
        subprocess.run(["ip", "link", "set", self._wire, state], check=True)
