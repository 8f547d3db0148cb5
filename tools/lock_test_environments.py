"""Pin every package of the environments that tests build: tests/locks/NAME.in to NAME.txt.

.venv/bin/python tools/lock_test_environments.py [NAME ...]

Owns: tests/locks/*.txt.
Leaves: resolving to uv, in the version and with the package sources of run_uv.py; which
environment a test builds to the test.
Always: for every Python and system at once, without the addresses of this machine. torch is pinned
without a build such as `+cpu`; it pins what it brings for GPUs itself.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "tests" / "locks"
# Which of these there are depends on the build of torch, which is the machine's choice.
BESIDE_TORCH = re.compile(r"(?:triton|nvidia-[\w-]+|cuda-[\w-]+)==")
COMMAND = "python tools/lock_test_environments.py"


def main(names: list[str]) -> int:
    for name in names or sorted(file.stem for file in LOCKS.glob("*.in")):
        lock = LOCKS / f"{name}.txt"
        words = [sys.executable, str(ROOT / "tools/run_uv.py"), "pip", "compile", "--quiet"]
        words += ["--universal", "--python-version", "3.10", "--no-annotate"]
        words += ["--no-emit-index-url", "--no-emit-find-links"]
        words += ["--custom-compile-command", COMMAND]
        code = subprocess.call([*words, "--output-file", str(lock), str(LOCKS / f"{name}.in")])
        if code:
            return code
        lock.write_text(without_builds_of_torch(lock.read_text()))
    return 0


def without_builds_of_torch(lock: str) -> str:
    """The lock with one line for torch, and none for what only some builds of it bring."""
    lines: list[str] = []
    for line in lock.splitlines():
        if torch := re.match(r"torch==[\d.]+", line):
            line = torch[0]
        if not BESIDE_TORCH.match(line) and line not in lines:
            lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
