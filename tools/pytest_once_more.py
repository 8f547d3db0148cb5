"""Run pytest; run the few tests that failed once more, alone.

.venv/bin/python tools/pytest_once_more.py -n 2 --dist loadfile -m azure

Owns: the second run and its closing words, which name each test that failed at first.
Leaves: everything else to pytest, whose arguments these are. Make targets call pytest itself;
`.ci/run` has them call this.
Always: a test that fails twice fails, and so does a run in which many fail. What passed only at the
second attempt is said as the last words of the run.

Exit codes are pytest's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# More failures than these have a cause.
FEW = 6
_TESTS_FAILED = 1


def failed_tests(cache: Path) -> list[str]:
    """The tests that failed in the run before, in the order of their names."""
    table = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(table.read_text())) if table.exists() else []


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        # Suites run side by side in one checkout: each has a cache of its own.
        command = [sys.executable, "-m", "pytest", *arguments, "-o", f"cache_dir={folder}"]
        code = subprocess.run(command).returncode
        failed = failed_tests(Path(folder))
        if code != _TESTS_FAILED or not 0 < len(failed) <= FEW:
            return code
        print(f"== {len(failed)} failed: once more, alone", flush=True)
        code = subprocess.run([*command, "-n0", "--last-failed"]).returncode
        if code == 0:
            print("== passed only when run once more:", *failed, sep="\n   ", flush=True)
        return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
