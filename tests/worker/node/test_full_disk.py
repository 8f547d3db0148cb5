"""The node's disk is full while ranks print and log: nothing is lost in silence."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.bench import Bench, bench_in

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root"),
]

# Prints through a shell, which goes on when its output is refused.
_PRINT = """
cat /dev/zero > ballast 2>/dev/null
for n in $(seq {lines}); do echo "line $n {filling}" 2>/dev/null; done
sleep {seconds}
"""

_LOG = """
import json, os, urllib.error, urllib.request
refused = 0
for step in range(300):
    body = {"run_id": os.environ["AZUREML_RUN_ID"], "key": "loss", "value": step, "step": step,
            "timestamp": 1}
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric",
        json.dumps(body).encode(), {"Content-Type": "application/json",
        "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]})
    try:
        urllib.request.urlopen(request, timeout=60).read()
    except urllib.error.HTTPError:
        refused += 1
print(f"logged 300, refused {refused}", flush=True)
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Bench]:
    """Nodes whose scratch is on a disk of 16 MB."""
    scratch = tmp_path / "home" / "scratch"
    scratch.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", str(scratch)],
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode()}")
    try:
        with bench_in(tmp_path / "home") as bench:
            yield bench
    finally:
        subprocess.run(["umount", "-l", str(scratch)], check=True)


def _notices(bench: Bench) -> list[str]:
    events = [event for event in bench.server.events[0] if event["kind"] == "notice"]
    return [str(event["body"]["message"]) for event in events]


def test_what_ranks_print_on_a_full_disk_is_kept(small: Bench) -> None:
    command = _PRINT.format(lines=600, filling="x" * 100, seconds=1.5)
    small.run(small.plan(command))
    expected = "".join(f"line {n} {'x' * 100}\n" for n in range(1, 601))
    assert small.server.logs["user_logs/std_log.txt"].decode() == expected
    assert small.exit()["error"] is None
    assert any(notice.startswith("no space left on `scratch`") for notice in _notices(small))


def test_a_job_is_stopped_before_its_log_has_no_space(small: Bench) -> None:
    lines = 'while true; do echo "line $((n += 1)) {filling}" || break; sleep 0.001; done'
    command = "cat /dev/zero > ballast 2>/dev/null; " + lines.format(filling="x" * 500)
    small.run(small.plan(command))
    error = small.exit()["error"]
    assert error["code"] == "disk_full", error
    assert "was stopped because what it prints to std_log.txt has no more space" in error["message"]
    numbers = [
        int(line.split()[1]) for line in small.server.logs["user_logs/std_log.txt"].splitlines()
    ]
    assert numbers == list(range(1, len(numbers) + 1))


def test_lines_that_were_lost_all_the_same_are_told_with_their_number(small: Bench) -> None:
    """Faster than the space behind the log can be watched."""
    command = _PRINT.format(lines=100_000, filling="x" * 200, seconds=0)
    small.run(small.plan(command))
    log = small.server.logs["user_logs/std_log.txt"]
    (notice,) = [text for text in _notices(small) if "incomplete" in text]
    assert f"after {len(log):,} bytes, {log.count(bytes([10])):,} lines" in notice


def test_metrics_logged_on_a_full_disk_arrive(small: Bench) -> None:
    script = small.server.put_snapshot({"log.py": _LOG})
    small.run(small.plan("cat /dev/zero > ballast 2>/dev/null; python log.py", code=script))
    assert small.exit()["error"] is None
    (log,) = small.server.logs.values()
    assert log == b"logged 300, refused 0\n"
    steps = [record["step"] for record in small.server.history[0] if record["kind"] == "metric"]
    assert sorted(set(steps)) == list(range(300))


def test_the_worker_reports_its_end_on_a_full_disk(small: Bench) -> None:
    plan = small.plan("cat /dev/zero > ballast 2>/dev/null; exit 3")
    small.run(plan)
    assert small.exit()["exit_code"] == 3
    assert json.loads((small.node(plan) / "exit.json").read_text())["exit_code"] == 3
