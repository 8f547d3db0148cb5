"""Plant faults in the product, one after another, and see that the gate's suites catch each.

    .venv/bin/python tools/check_the_gate.py [NAME ...]

Owns: the faults, each with the suite that has to fail by it, and a checkout where they are planted.
Leaves: the suites to their make targets. By hand: it takes as long as the gate, and more.
Always: the checkout is a clone of its own, removed at the end. A test holds that the text of each
fault stands in the product; one that does not would plant nothing.

Exit code: 0 if every fault was caught, 1 else.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from run_suites import left_behind

ROOT = Path(__file__).resolve().parent.parent
# What the suites find installed, instead of installing it again.
SHARED = (
    ".test-environments",
    ".azure-clients",
    ".azurite",
    ".oidc-provider",
    ".yaml-language-server",
    ".test-ray",
)
# What `make install-all` brings beside them that a suite imports.
INSTALLED = (".venv/.group-object-store", ".venv/.extra-postgres", ".venv/.group-ui")


@dataclass(frozen=True)
class Fault:
    """`old` stands once in `file` and becomes `new`; `make SUITE` must fail by it."""

    name: str
    suite: str
    file: str
    old: str
    new: str


_TRAINING = "smoke SMOKE=tests/smoke/test_training.py"
_FAILURES = "smoke SMOKE=tests/smoke/test_failures.py"
_RANKS = "src/torchyard/worker/launch/ranks.py"
FAULTS = (
    Fault(
        "an import goes up the layers", "check", "src/torchyard/base/clock.py",
        '_BOOT_ID = "',
        'import torchyard.jobs.records.types  # noqa: F401\n\n_BOOT_ID = "',
    ),
    Fault(
        "a permission is not asked", "test", "src/torchyard/workspaces/guarded_routes.py",
        "identity = await run_in_threadpool(access.enforce, request, permission)",
        "identity = await run_in_threadpool(access.enforce, request, Permission.SELF)",
    ),
    Fault(
        "a point is stored twice", "test-postgres-core",
        "src/torchyard/jobs/history/history_store.py",
        "return [point for point in points if point not in seen]",
        "return list(points)",
    ),
    Fault(
        "an exit code is swallowed", _FAILURES, _RANKS,
        "else os.WEXITSTATUS(status)", "else 0 * os.WEXITSTATUS(status)",
    ),
    Fault(
        "a byte of a log is lost", _TRAINING, "src/torchyard/worker/files/logs.py",
        "[file.position - first : len(window) - keep]",
        "[file.position - first : len(window) - keep].replace(b'6', b'', 1)",
    ),
    Fault(
        "a rank has the wrong number", _TRAINING, "src/torchyard/worker/launch/launch_forms.py",
        "rank = str(node * plan.processes_per_node + local_rank)",
        "rank = str(local_rank)",
    ),
    Fault(
        "a process is left behind", _FAILURES, "src/torchyard/worker/system/processes.py",
        "send(process.pid, process.start_time, signal.SIGKILL)", "pass",
    ),
)  # fmt: skip


def main(names: Sequence[str]) -> int:
    faults = [fault for fault in FAULTS if not names or fault.name in names]
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="gate-") as folder:
        # Some tests run as other users, who have to reach it.
        Path(folder).chmod(0o755)
        checkout = Path(folder) / "checkout"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
        for shared in SHARED:
            if (ROOT / shared).exists():
                (checkout / shared).symlink_to(ROOT / shared)
        subprocess.run(["make", "-s", *INSTALLED], cwd=checkout, check=True)
        tests = [_caught_by(fault, checkout) for fault in faults]
    return 0 if all(tests) else 1


def _caught_by(fault: Fault, checkout: Path) -> str:
    """What failed first with the fault planted; empty if nothing did."""
    file = checkout / fault.file
    source = file.read_text()
    file.write_text(source.replace(fault.old, fault.new))
    # One failure is enough.
    variables = os.environ | {
        "PYTEST_ADDOPTS": "--exitfirst",
        "CI": "true",
        "TMPDIR": str(checkout.parent),
    }
    run = subprocess.run(
        ["make", "--no-print-directory", *fault.suite.split()],
        cwd=checkout, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace",
    )  # fmt: skip
    file.write_text(source)
    for process in left_behind(str(checkout.parent)):
        with suppress(ProcessLookupError):
            os.kill(int(process.split()[0]), signal.SIGKILL)
    test = "" if run.returncode == 0 else _first_failure(run.stdout)
    print(f"{fault.suite.split()[0]:20} {fault.name:32} {test or 'NOT CAUGHT'}", flush=True)
    return test


def _first_failure(output: str) -> str:
    failures = re.findall(r"^(?:FAILED|ERROR) (\S+)|^(.* BROKEN)$", output, re.MULTILINE)
    test = next((test or contract for test, contract in failures), output.strip()[-200:])
    reason = re.search(r"^E  +(\S.*)$", output, re.MULTILINE)
    return f"{test}: {reason[1][:200]}" if reason is not None else test


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
