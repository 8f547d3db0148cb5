"""What dies, fills or is taken away: the job says so, or goes on and loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import required
from end_to_end.yard_under_test import Yard, running_server, running_yard
from eventually import eventually

pytestmark = [pytest.mark.smoke, pytest.mark.timeout(600)]

RAISE = """
import os, time

print("rank", os.environ["RANK"], "begins", flush=True)
if os.environ["RANK"] == "1":
    raise ValueError("the batch is empty")
time.sleep(86_400)
"""

# The first attempt waits to be ended, the second goes on from what it left.
RESUME = """
import os, signal, sys, time
from pathlib import Path

attempt, step = os.environ["TORCHYARD_ATTEMPT_NUMBER"], Path("outputs/step.txt")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if attempt == "1":
    step.write_text("7")
    print("waits at step 7", flush=True)
    time.sleep(86_400)
print("resumes at step", step.read_text(), flush=True)
"""

# Prints its first half, waits for the file `go` in its folder, and prints the other.
PRINT = """
import time
from pathlib import Path

for step in range(2000):
    while step == 1000 and not Path("go").exists():
        time.sleep(0.02)
    print("step", step, "x" * 100, flush=True)
Path("outputs/weights.bin").write_bytes(bytes(range(256)) * 4096)
"""
PRINTED = "".join(f"step {step} {'x' * 100}\n" for step in range(2000)).encode()

# Prints until the script is where it hangs, however long its interpreter takes to start.
START_TO_HANG = """
(until [ -e there ]; do echo starting; sleep 0.1; done) &
exec python hang.py
"""
HANG = """
import time
from pathlib import Path

def wait_for_batch():
    Path("there").touch()
    time.sleep(86_400)

wait_for_batch()
"""

LEAVE_CHILDREN = """
setsid sleep 86399 &
(trap '' TERM; sleep 86398) &
echo begun
sleep 86397
"""


def wait_for_line(yard: Yard, job: str, line: bytes) -> None:
    eventually(lambda: line in b"".join(yard.logs(job).values()), f"{job} prints {line!r}")


@pytest.fixture
def small_yard(new_url: Callable[[], str]) -> Iterator[Yard]:
    """A server whose machine has one node, over all its clusters."""
    with running_yard("one-node", new_url(), machine="nodes: 1\n") as yard:
        yield yard
        yard.quiet_down()


@pytest.fixture
def full_yard(tmp_path: Path) -> Iterator[Yard]:
    """A server whose home is on a disk of 96 MB, with the nodes' scratch on another."""
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    for folder in (home, scratch):
        folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m,mode=700", "tmpfs", str(home)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        required.missing(f"no file system can be mounted here: {mounted.stderr}")
    try:
        (home / "scratch").symlink_to(scratch)
        with running_server(Yard(home)) as yard:
            yield yard
            (home / "ballast").unlink(missing_ok=True)
            yard.quiet_down()
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def test_a_rank_that_dies_fails_the_job_and_is_named(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    job = {
        "name": "dies",
        "command": "python train.py",
        "distribution": {"type": "pytorch"},
        "resources": {"instance_count": 2},
    }
    _, error = yard.run("job", "create", "-f", write_job(job, train=RAISE), "--stream", expect=1)
    cause = "rank 1 on node 1 exited with code 1: ValueError: the batch is empty (train.py line 6"
    assert f"error: {cause}" in error
    ended = yard.job("dies")
    assert (ended["status"], ended["exit_code"]) == ("Failed", 1)
    assert ended["error"]["message"].startswith(cause)
    assert ended["error"]["details"]["rank"] == 1


def test_a_job_that_hangs_fails_and_says_where(yard: Yard, write_job: Callable[..., str]) -> None:
    properties = {"torchyard.hang_after_s": 3, "torchyard.hang_action": "fail"}
    job = {"name": "hangs", "command": START_TO_HANG, "properties": properties}
    yard("job", "create", "-f", write_job(job, hang=HANG))
    ended = yard.wait("hangs")
    assert (ended["status"], ended["error"]["code"]) == ("Failed", "hang")
    stack = yard.read("jobs/hangs/files/user_logs/stacks_rank_0.txt").decode()
    assert "wait_for_batch" in stack


def test_a_job_whose_worker_is_killed_is_tried_again(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    job = {
        "name": "worker-killed",
        "command": "python resume.py",
        "properties": {"torchyard.retry.max_attempts": 2, "torchyard.retry.backoff_s": 0},
    }
    yard("job", "create", "-f", write_job(job, resume=RESUME))
    wait_for_line(yard, "worker-killed", b"waits at step 7")
    os.kill(yard.worker_of("worker-killed")["pid"], signal.SIGKILL)
    done = yard.completed("worker-killed")
    assert done["attempt"] == 2
    assert any("killed by signal 9" in notice for notice in done["notices"]), done["notices"]
    assert yard.logs_of_attempts("worker-killed") == ["waits at step 7\n", "resumes at step 7\n"]


def test_a_job_outlives_its_killed_server_and_its_log_is_whole(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    job_file = write_job({"name": "outlives", "command": "python print.py"}, print=PRINT)
    yard("job", "create", "-f", job_file)
    wait_for_line(yard, "outlives", b"step 999 ")
    work = yard.node_of("outlives") / "work"
    yard.kill_server()
    try:
        (work / "go").touch()
        eventually((work / "outputs/weights.bin").exists, "the script has ended")
    finally:
        yard("server", "start")
    yard.completed("outlives")
    assert yard.logs("outlives") == {"user_logs/std_log.txt": PRINTED}
    assert yard.read("jobs/outlives/files/outputs/weights.bin") == bytes(range(256)) * 4096


def test_a_cluster_goes_from_zero_to_two_nodes_and_back(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    idle = ("--idle-time-before-scale-down", "1")
    yard("compute", "create", "-n", "pair", "--max-instances", "2", *idle)

    def nodes() -> int:
        pair = json.loads(yard("compute", "show", "-n", "pair", "-o", "json"))
        return int(pair["current_node_count"])

    assert nodes() == 0
    resources = {"instance_count": 2}
    job = {"name": "on-two", "command": "true", "compute": "pair", "resources": resources}
    yard("job", "create", "-f", write_job(job), "--stream")
    yard.completed("on-two")
    eventually(lambda: nodes() == 0, "the cluster has no node")
    counts = yard.get("computes/pair/history")["counts"]
    assert [(count["current"], count["running"]) for count in counts] == [(2, 2), (2, 0), (0, 0)]


def test_a_low_priority_job_gives_its_node_away_and_resumes(
    small_yard: Yard, write_job: Callable[..., str]
) -> None:
    yard = small_yard
    yard("compute", "create", "-n", "spare", "--tier", "low_priority", "--max-instances", "1")
    yard("compute", "create", "-n", "mine", "--max-instances", "1")
    job = {"name": "training", "command": "python resume.py", "compute": "spare"}
    yard("job", "create", "-f", write_job(job, resume=RESUME))
    wait_for_line(yard, "training", b"waits at step 7")
    urgent = {"name": "urgent", "command": "echo through", "compute": "mine"}
    yard("job", "create", "-f", write_job(urgent))
    yard.completed("urgent")
    done = yard.completed("training")
    assert yard.logs_of_attempts("training") == ["waits at step 7\n", "resumes at step 7\n"]
    assert any(
        notice.startswith("attempt 1 was preempted: job `urgent` needs a node of `mine`")
        for notice in done["notices"]
    )


def test_a_full_disk_refuses_jobs_and_loses_nothing_of_those_that_run(
    full_yard: Yard, write_job: Callable[..., str], tmp_path: Path
) -> None:
    yard = full_yard
    job_file = write_job({"name": "prints", "command": "python print.py"}, print=PRINT)
    yard("job", "create", "-f", job_file)
    wait_for_line(yard, "prints", b"step 999 ")
    ballast = yard.home / "ballast"
    _fill(ballast)
    work = yard.node_of("prints") / "work"
    (work / "go").touch()
    eventually((work / "outputs/weights.bin").exists, "the script has ended")

    def refusal(number: int) -> str:
        # What the full disk has ended, such as the compiling of modules, frees a little of it.
        _fill(ballast)
        file = write_job({"name": f"refused-{number}", "command": "true"})
        with contextlib.suppress(AssertionError):
            return yard.run("job", "create", "-f", file, expect=1)[1]
        return ""

    error = next(filter(None, map(refusal, range(20))), "")
    assert "error: no space left on `" in error and "hint: free some space" in error
    assert json.loads(yard("job", "show", "-n", "prints", "-o", "json"))["status"] != "Failed"

    ballast.unlink()
    yard.completed("prints")
    assert yard.logs("prints") == {"user_logs/std_log.txt": PRINTED}
    assert yard.read("jobs/prints/files/outputs/weights.bin") == bytes(range(256)) * 4096
    yard("job", "create", "-f", write_job({"name": "later", "command": "true"}))
    yard.completed("later")


def _fill(ballast: Path) -> None:
    with open(ballast, "ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size):
                    pass


def test_a_canceled_job_leaves_no_process(yard: Yard, write_job: Callable[..., str]) -> None:
    yard("job", "create", "-f", write_job({"name": "canceled", "command": LEAVE_CHILDREN}))
    wait_for_line(yard, "canceled", b"begun")

    def sleeps() -> list[str]:
        return [process for process in yard.processes() if "sleep\0863" in process]

    eventually(lambda: len(sleeps()) == 3, "the job's three children run")
    yard("job", "cancel", "-n", "canceled")
    assert yard.wait("canceled")["status"] == "Canceled"
    eventually(lambda: not sleeps(), "no process of the job is left")


def test_what_is_wrong_in_a_job_file_is_said_with_a_hint(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    job_file = write_job({"name": "wrong", "command": "true", "comand": "false"})
    _, error = yard.run("job", "create", "-f", job_file, expect=2)
    assert error.startswith("error: ") and "comand" in error and "\nhint: " in error
    _, error = yard.run("job", "show", "-n", "never-made", expect=2)
    assert error.startswith("error: job `never-made` does not exist") and "\nhint: " in error
