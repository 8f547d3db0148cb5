"""Small wheels made by tests, so that they need no network."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path


def put(
    folder: Path,
    name: str,
    version: str,
    requires: tuple[str, ...] = (),
    text: str = "",
    script: str = "",
    tag: str = "py3-none-any",
) -> Path:
    """Write a wheel of one module; `script` is the name of a command that prints `text`.

    Args:
        tag: what it is for, `cp39-none-any` for Python 3.9 alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    files = {
        f"{module}/__init__.py": text or f"__version__ = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    if script:
        files[f"{module}/__main__.py"] = (
            "import sys\n\n\ndef main():\n    print(sys.executable)\n    return 0\n"
        )
        files[f"{info}/entry_points.txt"] = (
            f"[console_scripts]\n{script} = {module}.__main__:main\n"
        )
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    wheel = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, content)
    return wheel


def put_source(folder: Path, name: str, version: str, backend: str) -> Path:
    """Write a source package whose build runs the code `backend`."""
    source = folder / f"{name}-{version}.tar.gz"
    files = {
        "pyproject.toml": (
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        ),
        "backend.py": backend,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    with tarfile.open(source, "w:gz") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
    return source
