"""The worker as one file.

Owns: what goes into the zip, its name.
Leaves: running it to the engines.
Always: the name depends on the content; an existing file never changes, because running workers
still import from it.
"""

from __future__ import annotations

import functools
import hashlib
import marshal
import os
import sys
import tempfile
import zipfile
from importlib import util
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_MAIN = "import sys\n\nfrom torchyard.worker.__main__ import main\n\nsys.exit(main())\n"
# Equal sources give equal bytes.
_DATE = (2020, 1, 1, 0, 0, 0)


def worker_zip(home: Path) -> Path:
    """The worker's zip below `home`, made when it is not there."""
    sources = _sources()
    target = home / "workers" / f"worker-{_hash(sources)}.pyz"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(sources, target)
    return target


@functools.lru_cache(maxsize=4)
def worker_sha256(home: Path) -> str:
    """That of the worker's zip, which nodes ask for; looked at once in the life of a server."""
    return sha256_of(worker_zip(home))


def sha256_of(file: Path) -> str:
    """By which a node knows that it has the very same file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def kept_zip(home: Path, sha256: str) -> Path | None:
    """The worker's zip with this content, of this version of torchyard or an earlier one."""
    newest_first = [worker_zip(home), *sorted((home / "workers").glob("worker-*.pyz"))]
    return next((file for file in newest_first if sha256_of(file) == sha256), None)


def _sources() -> dict[str, bytes]:
    files = [
        _PACKAGE / "__init__.py",
        *sorted(_PACKAGE.glob("shared/**/*.py")),
        *sorted(_PACKAGE.glob("worker/**/*.py")),
    ]
    sources = {file.relative_to(_PACKAGE.parent).as_posix(): file.read_bytes() for file in files}
    return {"__main__.py": _MAIN.encode(), **sources}


def _hash(sources: dict[str, bytes]) -> str:
    digest = hashlib.sha256(str(sys.implementation.cache_tag).encode())
    for name, content in sources.items():
        digest.update(f"\0{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _write(sources: dict[str, bytes], target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        draft = Path(folder, "worker.pyz")
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as archive:
            for name, content in sources.items():
                _add(archive, name, content)
                # Beside its source, as zipimport wants it; another Python than ours skips it.
                _add(archive, f"{name}c", _compiled(name, content))
        draft.chmod(0o644)
        os.replace(draft, target)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _DATE), content)


def _compiled(name: str, content: bytes) -> bytes:
    """A `.pyc` that is not checked against its source: a zip's times are too coarse to tell a stale
    one, and none is stale here.

    Source: https://peps.python.org/pep-0552/#specification
    """
    code = compile(content, name, "exec", dont_inherit=True)
    unchecked = (1).to_bytes(4, "little")
    return util.MAGIC_NUMBER + unchecked + util.source_hash(content) + marshal.dumps(code)
