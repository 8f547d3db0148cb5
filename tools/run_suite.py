"""Run pytest; give the few tests that failed a second try, each alone.

    SUITE=test-azure .venv/bin/python tools/run_suite.py -n 2 -m azure

Owns: the second try, the lines `flaky: NODEID: message`, and the record of the suite in $CI_LOGS
(default `.ci/logs`): NAME.log and NAME.json.
Leaves: everything else to pytest, whose arguments these are; tools/run_suites.py runs several.
Always: a test that fails twice fails. Nothing that many tests, a collection, or a test file changed
since `main` failed by is tried again.

Exit codes are pytest's.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

# More failures than these have a cause.
MAX_TRIED_AGAIN = 5
# A test that hangs once must not hang the suite for long; marks of a test's own stay.
_ALONE_TIMEOUT_S = 360
# A second try waits for others' work to end, if it does so soon.
_CALM_LOAD = 2.0
_CALM_WAIT_S = float(os.environ.get("CI_CALM_WAIT_S", "60"))
_TESTS_FAILED = 1
_CLOSING_LINE = re.compile(r"^=+ (.*) in [0-9.]+s.*=+$")
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")


@dataclass
class Record:
    """What one suite did; counts are of tests, and `flaky` ones count as passed."""

    suite: str
    code: int
    seconds: int
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)


def logs_folder() -> Path:
    folder = Path(os.environ.get("CI_LOGS") or ".ci/logs")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def failed_tests(cache: Path) -> list[str]:
    """The node ids that pytest wrote down as failed, in the order of their names."""
    table = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(table.read_text())) if table.exists() else []


def first_message(output: str, test: str) -> str:
    """What pytest's summary says of a test, else nothing."""
    for line in output.splitlines():
        for word in ("FAILED", "ERROR"):
            if line.startswith(f"{word} {test} - "):
                return line.removeprefix(f"{word} {test} - ")
    return ""


def counts(output: str) -> dict[str, int]:
    """Tests by outcome, of pytest's last closing line; errors count as failed."""
    closing = [match[1] for line in output.splitlines() if (match := _CLOSING_LINE.match(line))]
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for number, word in _COUNT.findall(closing[-1]) if closing else ():
        totals["failed" if word.startswith("error") else word] += int(number)
    return totals


def tried_again(tests: Sequence[str], changed_files: Iterable[str]) -> bool:
    """Whether these failures are worth a second try."""
    changed = set(changed_files)
    return 0 < len(tests) <= MAX_TRIED_AGAIN and all(
        "::" in test and test.split("::")[0] not in changed for test in tests
    )


def changed_files() -> set[str]:
    """Files that differ from `main`; of a clone, from the `main` it came from."""
    for base in ("origin/main", "main"):
        difference = subprocess.run(
            ["git", "diff", "--name-only", f"{base}...HEAD"], capture_output=True, text=True
        )
        if difference.returncode == 0:
            return set(difference.stdout.splitlines())
    return set()


def _run(command: Sequence[str], log: Path) -> tuple[int, str]:
    """Run a command; its output goes to stdout and to the end of `log`."""
    lines = []
    with log.open("a") as file:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            sys.stdout.write(line)
            sys.stdout.flush()
            file.write(line)
        code = process.wait()
    # As a shell says it of a process that a signal ended.
    return (128 - code if code < 0 else code), "".join(lines)


def _wait_for_calm() -> None:
    limit = time.monotonic() + _CALM_WAIT_S
    while os.getloadavg()[0] >= _CALM_LOAD and time.monotonic() < limit:
        time.sleep(1)


def run(suite: str, arguments: Sequence[str]) -> Record:
    log = logs_folder() / f"{suite}.log"
    log.unlink(missing_ok=True)
    started = time.monotonic()
    pytest = [sys.executable, "-m", "pytest"]
    with tempfile.TemporaryDirectory() as cache:
        code, output = _run([*pytest, *arguments, "-o", f"cache_dir={cache}"], log)
        failures = failed_tests(Path(cache))
    totals = counts(output)
    record = Record(suite, code, 0, totals["passed"], totals["failed"], totals["skipped"], failures)
    if code == _TESTS_FAILED and tried_again(failures, changed_files()):
        _wait_for_calm()
        for test in failures:
            print(f"== once more, alone: {test}", flush=True)
            alone = [
                "-p",
                "no:xdist",
                "-p",
                "no:cacheprovider",
                "-o",
                f"timeout={_ALONE_TIMEOUT_S}",
            ]
            if _run([*pytest, *alone, test], log)[0] == 0:
                record.flaky.append(f"{test}: {first_message(output, test)}")
                record.failures = [other for other in record.failures if other != test]
        tests_again = len(failures) - len(record.failures)
        record.failed, record.passed = record.failed - tests_again, record.passed + tests_again
        record.code = _TESTS_FAILED if record.failures else 0
    for line in record.flaky:
        print(f"flaky: {line}", flush=True)
    record.seconds = round(time.monotonic() - started)
    log.with_suffix(".json").write_text(json.dumps(asdict(record), indent=2))
    return record


if __name__ == "__main__":
    sys.exit(run(os.environ.get("SUITE") or "pytest", sys.argv[1:]).code)
