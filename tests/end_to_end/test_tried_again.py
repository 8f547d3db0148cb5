"""A job whose attempt or worker dies: nothing is lost, and it is tried again if it asks so."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from end_to_end.yard_under_test import Yard, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(240)]

COUNT = """
import os, sys, time
from pathlib import Path

attempt = int(os.environ["TORCHYARD_ATTEMPT_NUMBER"])
state = Path("outputs/state.txt")
done = int(state.read_text()) if state.exists() else 0
print(f"attempt {attempt} begins at {done}", flush=True)
for step in range(done, 6):
    state.write_text(str(step + 1))
    (Path(sys.argv[1]) / f"step-{step}").write_text(str(attempt))
    if step == 2 and attempt == 1:
        sys.exit(75)
print(f"attempt {attempt} ends", flush=True)
"""

WAIT = """
import os, time
from pathlib import Path

Path("outputs/made.txt").write_text("by attempt " + os.environ["TORCHYARD_ATTEMPT_NUMBER"])
print("waiting", flush=True)
if os.environ["TORCHYARD_ATTEMPT_NUMBER"] == "1":
    time.sleep(120)
print("went on", flush=True)
"""


def test_an_attempt_resumes_where_the_previous_one_ended(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    job = {
        "name": "tried-twice",
        "command": "python count.py ${{outputs.steps}}",
        "outputs": {"steps": None},
        "properties": {
            "torchyard.retry.max_attempts": 3,
            "torchyard.retry.backoff_s": 0.5,
            "torchyard.retry.on": "exit 75",
        },
    }
    yard("job", "create", "-f", write_job(job, count=COUNT))
    done = yard.completed("tried-twice")

    assert done["attempt"] == 2
    first, second = yard.logs_of_attempts("tried-twice")
    assert first == "attempt 1 begins at 0\n"
    assert second == "attempt 2 begins at 3\nattempt 2 ends\n"
    assert yard.read("jobs/tried-twice/files/outputs/state.txt") == b"6"
    made = {step: yard.read(f"jobs/tried-twice/outputs/steps/step-{step}") for step in range(6)}
    assert b"".join(made.values()) == b"111222"
    assert any("attempt 1 of 3 failed" in notice for notice in done["notices"])
    names = [stage["name"] for stage in done["stages"]]
    assert names.count("Scaling") == 2 and names.count("Running") == 2


def test_a_failure_that_the_policy_does_not_name_is_not_retried(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    job = {
        "name": "not-named",
        "command": "exit 3",
        "properties": {
            "torchyard.retry.max_attempts": 3,
            "torchyard.retry.on": "exit 75, signal KILL",
        },
    }
    yard("job", "create", "-f", write_job(job))
    ended = yard.wait("not-named")
    assert (ended["status"], ended["attempt"], ended["exit_code"]) == ("Failed", 1, 3)


@pytest.mark.parametrize("also_supervisor", [False, True])
def test_the_files_of_a_killed_worker_are_uploaded(
    yard: Yard, write_job: Callable[..., str], also_supervisor: bool
) -> None:
    name = f"worker-killed-{also_supervisor}".lower()
    yard("job", "create", "-f", write_job({"name": name, "command": "python wait.py"}, wait=WAIT))
    _kill_worker(yard, name, also_supervisor)
    ended = yard.wait(name)

    assert ended["status"] == "Failed"
    assert ended["error"]["code"] == "worker_lost"
    assert (
        "died together with its supervisor" if also_supervisor else "killed by signal 9"
    ) in ended["error"]["message"]
    assert yard.read(f"jobs/{name}/files/outputs/made.txt") == b"by attempt 1"
    assert yard.logs(name)["user_logs/std_log.txt"] == b"waiting\n"
    wait_until(lambda: not _marked(name, yard), 60, "no process of the job is left")


def test_a_killed_worker_is_tried_again(yard: Yard, write_job: Callable[..., str]) -> None:
    job = {
        "name": "worker-tried-again",
        "command": "python wait.py",
        "properties": {"torchyard.retry.max_attempts": 2, "torchyard.retry.backoff_s": 0},
    }
    yard("job", "create", "-f", write_job(job, wait=WAIT))
    _kill_worker(yard, "worker-tried-again", also_supervisor=False)
    done = yard.completed("worker-tried-again")
    assert done["attempt"] == 2
    assert yard.read("jobs/worker-tried-again/files/outputs/made.txt") == b"by attempt 2"


def _kill_worker(yard: Yard, name: str, also_supervisor: bool) -> None:
    def waiting() -> bool:
        log = b"".join(yard.logs(name).values())
        return b"waiting" in log

    wait_until(waiting, 60, "the script waits")
    who = yard.worker_of(name)
    if also_supervisor:
        os.kill(who["supervisor"]["pid"], signal.SIGSTOP)
    os.kill(who["pid"], signal.SIGKILL)
    if also_supervisor:
        os.kill(who["supervisor"]["pid"], signal.SIGKILL)


def _marked(name: str, yard: Yard) -> list[str]:
    return [line for line in yard.processes() if "wait.py" in line]
