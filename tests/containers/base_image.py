"""A base image made on the spot: the machine's own Debian, its essential packages only.

Owns: which files, the tar of them.
Leaves: importing it to podman.
Always: nothing is fetched; a file is named once, by its real folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path

_MORE = ("ca-certificates", "libc-bin")
_NEEDLESS = re.compile(r"/usr/(share/(doc|man|info|locale|lintian)|games|local)(/|$)")
_FOLDERS = ("tmp", "proc", "sys", "dev", "run", "root", "home", "var/tmp", "opt", "mnt")


def write(target: Path, packages: Collection[str] = ()) -> None:
    """Write the tar to `target`; some 120 MB, in a few seconds.

    Args:
        packages: further ones that are installed on this machine, with what they depend on.
    """
    with tarfile.open(target, "w") as archive:
        for name in ("bin", "sbin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                archive.add(f"/{name}", name, recursive=False)
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            archive.addfile(folder)
        for path in sorted({*_files(packages), "/etc/passwd", "/etc/group"}):
            if path[1:] not in _FOLDERS:
                archive.add(path, path[1:], recursive=False)


def _files(packages: Collection[str]) -> Iterator[str]:
    seen = set()
    for path in _listed(packages):
        if path in ("/.", "/") or _NEEDLESS.match(path):
            continue
        folder, name = os.path.split(path)
        real = os.path.join(os.path.realpath(folder), name)
        if real not in seen and os.path.lexists(real) and os.path.dirname(real) != "/":
            seen.add(real)
            yield real


def _listed(packages: Collection[str]) -> list[str]:
    listing = _run("dpkg-query", "-W", "-f=${Essential} ${Priority} ${Package}\n")
    fields = [line.split() for line in listing.splitlines()]
    names = {line[-1] for line in fields if line[0] == "yes" or "required" in line[:-1]}
    depends = _run(
        "apt-cache", "depends", "--recurse", "--installed", "--no-recommends", "--no-suggests",
        "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances",
        *sorted(names), *_MORE, *packages,
    )  # fmt: skip
    names |= {line.strip() for line in depends.splitlines() if re.match(r"[a-z0-9]", line)}
    installed = set(_run("dpkg-query", "-W", "-f=${Package}\n").split())
    return sorted(
        _run("dpkg", "-L", *sorted((names | {*_MORE, *packages}) & installed)).splitlines()
    )


def _run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
