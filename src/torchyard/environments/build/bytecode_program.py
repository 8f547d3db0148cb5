"""`python -I -S -B bytecode_program.py SITE_PACKAGES CACHE [--copy]`: compile modules.

Owns: the cache of compiled modules, by the hash of their source and the version of Python;
compiling what it lacks, on all cores; linking each into `__pycache__`.
Leaves: which Python runs it to build/bytecode.py, locking and removing the cache to
packages/caches.py.
Always: no module is run; what Python reads from a link is checked against the source beside it
(PEP 552, by hash), so a link stays valid at any time and place, and a changed source is noticed.
The standard library only, Python 3.7 and later: it runs in the environment's.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import marshal
import os
import sys
import time
import warnings
from pathlib import Path

# Python replaces it by the path of the source when it imports the module.
_SOURCE_NAME = "module.py"
_CHECKED_HASH = 0b11
_MOST_PROCESSES = 32
# The file system has none left, or can't link here: then the environment gets a copy.
_CANT_LINK = (errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP)


def main(arguments: list[str]) -> int:
    """Compile and link every module; the exit code."""
    started = time.monotonic()
    site_packages, cache, may_link = Path(arguments[0]), Path(arguments[1]), len(arguments) == 2
    magic = importlib.util.MAGIC_NUMBER[:2].hex()
    folder = cache / f"{sys.implementation.cache_tag}-{magic}"
    folder.mkdir(parents=True, exist_ok=True)
    sources = _sources(site_packages)
    missing = {}
    for source, digest, size_bytes in sources:
        if not _bytecode_path(folder, digest).exists():
            missing[digest] = (size_bytes, source)
    signals = _compile_all(folder, missing)
    linked = sum(_put(folder, digest, source, may_link) for source, digest, _ in sources)
    compiled = sum(1 for digest in missing if _bytecode_path(folder, digest).exists())
    seconds = time.monotonic() - started
    print(
        f"Bytecode of {linked} modules: {compiled} compiled, the others shared with earlier "
        f"environments, in {seconds:.1f} s",
        file=sys.stderr,
    )
    if signals:
        print("Compiling a module crashed: its import compiles it", file=sys.stderr)
    return 0


def _sources(site_packages: Path) -> list[tuple[Path, str, int]]:
    """(file, sha256 of its content, size) of each module's source."""
    sources = []
    for top, folders, names in os.walk(site_packages):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            file = Path(top, name)
            if name.endswith(".py") and not file.is_symlink():
                content = file.read_bytes()
                sources.append((file, hashlib.sha256(content).hexdigest(), len(content)))
    return sources


def _compile_all(folder: Path, missing: dict[str, tuple[int, Path]]) -> int:
    """Compile the sources into the cache; how many processes a source crashed.

    Raises:
        OSError: a file can't be written.
    """
    largest_first = sorted(missing.items(), key=lambda item: -item[1][0])
    count = min(_processors(), _MOST_PROCESSES, max(1, len(largest_first) // 20))
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os._exit(_compile_some(folder, largest_first[number::count]))
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    failed = [os.WEXITSTATUS(status) for status in statuses if os.WIFEXITED(status) and status]
    if failed:
        raise OSError(failed[0], f"{os.strerror(failed[0])} (os error {failed[0]})", str(folder))
    return sum(1 for status in statuses if os.WIFSIGNALED(status))


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _compile_some(folder: Path, items: list[tuple[str, tuple[int, Path]]]) -> int:
    """The body of a child process: its exit code, that of the system's error where one occurs."""
    warnings.simplefilter("ignore")
    try:
        for digest, (_, source) in items:
            content = source.read_bytes()
            bytecode = _compiled(content)
            if bytecode and hashlib.sha256(content).hexdigest() == digest:
                _write(_bytecode_path(folder, digest), bytecode)
    except OSError as error:
        return error.errno or 1
    except BaseException:
        return errno.EIO
    return 0


def _compiled(content: bytes) -> bytes:
    """The bytes of a `.pyc` file; empty for what this Python cannot compile."""
    try:
        code = compile(content, _SOURCE_NAME, "exec", dont_inherit=True)
        body = marshal.dumps(code)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return b""
    header = importlib.util.MAGIC_NUMBER + _CHECKED_HASH.to_bytes(4, "little")
    return header + importlib.util.source_hash(content) + body


def _bytecode_path(folder: Path, digest: str) -> Path:
    return folder / digest[:2] / f"{digest}.pyc"


def _write(file: Path, content: bytes) -> None:
    """Write it whole, or not at all."""
    file.parent.mkdir(exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_bytes(content)
    os.replace(draft, file)


def _put(folder: Path, digest: str, source: Path, may_link: bool) -> bool:
    """Put the compiled module beside its source; False where it could not be compiled."""
    compiled, target = _bytecode_path(folder, digest), _target(source)
    target.parent.mkdir(exist_ok=True)
    if target.exists() or target.is_symlink():
        target.unlink()
    if not compiled.exists():
        return False
    if may_link:
        try:
            os.link(compiled, target)
            return True
        except OSError as error:
            if error.errno not in _CANT_LINK:
                raise
            if error.errno == errno.EMLINK:
                # Later environments link the new file; the many earlier ones keep the old one.
                _write(compiled, compiled.read_bytes())
    target.write_bytes(compiled.read_bytes())
    return True


def _target(source: Path) -> Path:
    return source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
