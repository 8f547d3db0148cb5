"""Ray's environment from another machine, with the Python that it was made of.

Owns: unpacking it, and the paths in it that change by that.
Leaves: which machine has one to who sends it, making one by uv to executors/ray/.
Always: it is complete only after it has run here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path
from typing import Any

from torchyard.base.errors import BuildFailed
from torchyard.shared.archives import BoundedTarInfo

_BESIDE = b"$ORIGIN/../lib\0"
_CHECK_S = 300.0


def unpack(file: Path, engines: Path, ray: str, version: str) -> None:
    """Make Ray's environment of an archive, whose files name the folder that it was made in.

    Args:
        file: in a folder of its own within `engines`, which is its workplace.

    Raises:
        BuildFailed: it did not arrive whole, or does not run here.
    """
    arrived = file.parent
    try:
        with tarfile.open(file, tarinfo=BoundedTarInfo) as archive:
            # Python 3.12 and later ask which entries are trusted.
            more: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
            archive.extractall(arrived, **more)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BuildFailed(f"Ray {ray} did not arrive whole: {error}", "try again") from error
    base, environment = engines / f"python-{version}", engines / f"ray-{ray}-py{version}"
    for name, target in (("python", base), ("environment", environment)):
        if target.exists():
            shutil.rmtree(target)
        os.rename(arrived / name, target)
    minor = ".".join(version.split(".")[:2])
    programs = environment / "bin"
    for name in ("python", "python3", f"python{minor}"):
        (programs / name).symlink_to(base / "bin" / f"python{minor}")
    settings = environment / "pyvenv.cfg"
    lines = settings.read_text().splitlines()
    settings_lines = [line for line in lines if not line.startswith("home ")]
    settings.write_text("\n".join([f"home = {base / 'bin'}", *settings_lines]) + "\n")
    for line in lines:
        if line.startswith("home "):
            _set_library_path(base / "bin" / f"python{minor}", line.partition("=")[2].strip())
    for program in programs.iterdir():
        if not program.is_symlink():
            _renew_first_line(program, programs / "python")
    check = [str(programs / "python"), "-c", "import ctypes, ssl, ray"]
    ended = subprocess.run(check, capture_output=True, text=True, timeout=_CHECK_S)
    if ended.returncode:
        last = " ".join(ended.stderr.split())[-300:]
        raise BuildFailed(
            f"Ray {ray} of this machine does not run there: {last}",
            "let uv there reach a package index, with UV_DEFAULT_INDEX in its environment",
        )
    (environment / "torchyard-complete").touch()


def _set_library_path(program: Path, home: str) -> None:
    """Let a Python that has its library in a file of its own find it beside itself.

    Args:
        home: the folder of the Python that it was; its library's path is written into it.

    Source: ld.so(8), `$ORIGIN`; elf(5), DT_RUNPATH is a text of the string table.
    """
    content = program.read_bytes()
    old = os.path.join(os.path.dirname(home), "lib").encode() + b"\0"
    if old in content and len(old) > len(_BESIDE):
        program.write_bytes(content.replace(old, _BESIDE.ljust(len(old), b"\0")))


def _renew_first_line(program: Path, python: Path) -> None:
    content = program.read_bytes()
    if content.startswith(b"#!") and b"python" in content.split(b"\n", 1)[0]:
        program.write_bytes(b"#!%b\n%b" % (os.fsencode(python), content.split(b"\n", 1)[1]))
