"""A conda channel in a folder, made on the spot, so that tests need no network."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Conda replaces this when it installs; as long as a folder's path may be.
PREFIX = "/made/by/a/test/" + "placehold_" * 20


def put(
    channel: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes],
    depends: tuple[str, ...] = (),
    noarch: str = "",
    subdir: str = "linux-64",
    form: str = ".conda",
    entry_points: tuple[str, ...] = (),
) -> Path:
    """Write a package and list it; files below `bin/` are executable, `PREFIX` in one is replaced.

    Args:
        form: `.conda` or `.tar.bz2`.
        entry_points: of a `noarch="python"` package, as `command = module:function`.
    """
    subdir = "noarch" if noarch else subdir
    contents = {path: _bytes(text) for path, text in files.items()}
    index: dict[str, Any] = {"name": name, "version": version, "build": "0", "build_number": 0}
    index |= {"depends": list(depends), "subdir": subdir}
    if noarch:
        index["noarch"] = noarch
    info = {"info/index.json": index, "info/paths.json": _paths(contents)}
    if entry_points:
        info["info/link.json"] = {
            "noarch": {"type": "python", "entry_points": list(entry_points)},
            "package_metadata_version": 1,
        }
    about = {path: json.dumps(document).encode() for path, document in info.items()}
    folder = channel / subdir
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / f"{name}-{version}-0{form}"
    if form == ".conda":
        _write_conda(package, about, contents)
    else:
        package.write_bytes(_tar({**about, **contents}, "w:bz2"))
    _list(package, index)
    return package


def put_python(channel: Path, version: str = "", requires: tuple[str, ...] = ()) -> str:
    """Pack this machine's own Python as a conda package, without its tests; its version."""
    version = version or ".".join(map(str, sys.version_info[:3]))
    short = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    base = Path(sys.base_prefix)
    files: dict[str, str | bytes] = {}
    left_out = ("site-packages", "test", "idlelib", "lib2to3", "__pycache__", "turtledemo")
    for file in sorted((base / "lib" / short).rglob("*")):
        path = file.relative_to(base)
        if file.is_file() and not set(path.parts) & set(left_out) and file.suffix != ".a":
            files[str(path)] = file.read_bytes()
    for library in base.glob("lib/libpython*.so.*"):
        files[str(library.relative_to(base))] = library.read_bytes()
    files[f"bin/{short}"] = (base / "bin" / short).resolve().read_bytes()
    for link in ("python", "python3"):
        files[f"bin/{link}"] = f"-> {short}"
    files[f"lib/{short}/site-packages/README.txt"] = "packages\n"
    put(channel, "python", version, files, requires)
    return version


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _paths(contents: Mapping[str, bytes]) -> dict[str, Any]:
    entries = []
    for path, content in contents.items():
        entry: dict[str, Any] = {"_path": path, "path_type": "hardlink"}
        if content.startswith(b"-> "):
            entry["path_type"] = "softlink"
        else:
            entry["sha256"] = hashlib.sha256(content).hexdigest()
            entry["size_in_bytes"] = len(content)
        if PREFIX.encode() in content:
            mode = "binary" if b"\0" in content else "text"
            entry |= {"prefix_placeholder": PREFIX, "file_mode": mode}
        entries.append(entry)
    return {"paths": entries, "paths_version": 1}


def _tar(contents: Mapping[str, bytes], mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for path, content in contents.items():
            member = tarfile.TarInfo(path)
            member.mtime = 1_700_000_000
            if content.startswith(b"-> "):
                member.type, member.linkname = tarfile.SYMTYPE, content[3:].decode()
                archive.addfile(member)
                continue
            member.size = len(content)
            member.mode = 0o755 if path.startswith("bin/") else 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _write_conda(package: Path, about: Mapping[str, bytes], contents: Mapping[str, bytes]) -> None:
    stem = package.name.removesuffix(".conda")
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"conda_pkg_format_version": 2}))
        archive.writestr(f"pkg-{stem}.tar.zst", _zstd(_tar(contents, "w")))
        archive.writestr(f"info-{stem}.tar.zst", _zstd(_tar(about, "w")))


def _zstd(data: bytes) -> bytes:
    """A Zstandard frame of blocks that are not compressed (RFC 8878, 3.1.1)."""
    # One segment, with the size of its content in eight bytes.
    parts = [struct.pack("<IB", 0xFD2FB528, 0b11100000), struct.pack("<Q", len(data))]
    blocks = [data[at : at + 65536] for at in range(0, len(data), 65536)] or [b""]
    for number, block in enumerate(blocks):
        last = number == len(blocks) - 1
        parts.append(struct.pack("<I", len(block) << 3 | last)[:3] + block)
    return b"".join(parts)


def _list(package: Path, index: Mapping[str, Any]) -> None:
    """Add it to the channel's list, with empty packages for its dependencies."""
    for folder in {package.parent.parent / "noarch", package.parent}:
        folder.mkdir(exist_ok=True)
        file = folder / "repodata.json"
        listed: dict[str, dict[str, Any]] = {
            "info": {"subdir": folder.name},
            "packages": {},
            "packages.conda": {},
        }
        if file.exists():
            listed = json.loads(file.read_text())
        if folder == package.parent:
            content = package.read_bytes()
            key = "packages.conda" if package.suffix == ".conda" else "packages"
            listed[key][package.name] = {
                **index,
                "sha256": hashlib.sha256(content).hexdigest(),
                "md5": hashlib.md5(content).hexdigest(),
                "size": len(content),
            }
        new = file.with_suffix(".new")
        new.write_text(json.dumps(listed))
        os.replace(new, file)
