"""`python -I -S -B bytecode_program.py REQUEST`: compile modules and write them to the output.

Owns: compiling what the request names, on all cores, in its order.
Leaves: which Python runs it to bytecode.py, what is asked for, and where a result is kept, to
bytecode_links.py.
Always: no module is run, and nothing is written but the output; what is compiled has the SHA-256
that the request names; Python compares a compiled module with the source beside it (PEP 552, by
hash), so it is valid at any time and place, and a changed source is noticed.
The standard library only, Python 3.7 and later: it runs in the environment's.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import marshal
import os
import sys
import warnings

# A module is about as large as its source; what is much larger is left to the jobs that import it.
MOST_TIMES, ALWAYS_BYTES, MOST_BYTES = 16, 1 << 20, 64 << 20
# Python replaces it by the path of the source when it imports the module.
_SOURCE_NAME = "module.py"
_CHECKED_HASH = 0b11
_MOST_PROCESSES = 32


def main(arguments: list[str]) -> int:
    """For each module, write a line with the SHA-256 of its source, the size and the SHA-256 of the
    `.pyc` file, then that file.
    """
    with open(arguments[0], encoding="ascii") as file:
        request = json.load(file)
    if request["is_idle"]:
        step_aside()
    output = os.dup(1)
    # What the compiler prints of a source must not mix with the output.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    sources = request["sources"]
    count = min(_processors(), _MOST_PROCESSES, max(1, len(sources) // 20))
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os._exit(_compile_some(arguments[0], output, sources[number::count]))
        children.append(child)
    return max(int(os.waitpid(child, 0)[1] != 0) for child in children)


def step_aside() -> None:
    """Run only when nothing else wants to."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        os.nice(19)


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _compile_some(lock_file: str, output: int, sources: list[tuple[str, str]]) -> int:
    """The body of a child process; its exit code."""
    warnings.simplefilter("ignore")
    try:
        with open(lock_file, "rb") as lock:
            for digest, path in sources:
                compiled = _compiled(digest, path)
                if compiled:
                    sum = hashlib.sha256(compiled).hexdigest()
                    head = f"{digest} {len(compiled)} {sum}\n".encode()
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    _write(output, head + compiled)
                    fcntl.flock(lock, fcntl.LOCK_UN)
    except BaseException:
        return 1
    return 0


def _compiled(digest: str, path: str) -> bytes:
    """The bytes of a `.pyc` file; empty for what is gone, or this Python can't compile."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return b""
    if hashlib.sha256(content).hexdigest() != digest:
        return b""
    try:
        code = compile(content, _SOURCE_NAME, "exec", dont_inherit=True)
        body = marshal.dumps(code)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return b""
    header = importlib.util.MAGIC_NUMBER + _CHECKED_HASH.to_bytes(4, "little")
    compiled = header + importlib.util.source_hash(content) + body
    return compiled if len(compiled) <= limit(len(content)) else b""


def limit(source_bytes: int) -> int:
    """How large the module of a source of this size may be."""
    return min(max(MOST_TIMES * source_bytes, ALWAYS_BYTES), MOST_BYTES)


def _write(output: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(output, view) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
