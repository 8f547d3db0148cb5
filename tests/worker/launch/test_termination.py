"""A rank that is asked to end: every program is asked once, and its last output is kept."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

import pytest

from torchyard.shared.plan import LaunchPlan
from worker.bench import Bench

SAVES = """
import json, os, signal, sys, time
asked = []

def save(number, frame):
    asked.append(number)
    os.write(1, f"saving {len(asked)}\\n".encode())  # whole, beside what the shell prints
    if len(asked) > 1:
        return
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        time.sleep(0.05)
    for line in range(200):
        print("line", line, "x" * 100, flush=True)
    with open(os.environ["SAVED"] + f"/saved-{sys.argv[1]}.json", "w") as file:
        json.dump(len(asked), file)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
open(f"ready-{sys.argv[1]}", "w").close()
while True:
    time.sleep(0.05)
"""
# As torchrun, Lightning and mpirun do it.
FORWARDS = """
import signal, subprocess, sys
children = [subprocess.Popen([sys.executable, "train.py", name]) for name in "ab"]

def forward(number, frame):
    for child in children:
        child.terminate()
    for child in children:
        child.wait()
    sys.exit(1)

signal.signal(signal.SIGTERM, forward)
for child in children:
    child.wait()
"""
READS = """
import subprocess, sys
script = subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
for line in script.stdout:
    print(line, end="", flush=True)
sys.exit(script.wait())
"""
KEEPS_ITS_LOADER = """
import os, signal, subprocess, sys, time
loader = subprocess.Popen(["sleep", "331"])

def save(number, frame):
    time.sleep(0.4)
    with open(os.environ["SAVED"] + "/saved-a.json", "w") as file:
        file.write("1" if loader.poll() is None else "0")
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
open("ready-a", "w").close()
while True:
    time.sleep(0.05)
"""


def _stopped(bench: Bench, command: str, names: str, reason: str = "cancel") -> LaunchPlan:
    """The plan of a job that was stopped once all of its scripts were ready."""
    files = {"train.py": SAVES, "launcher.py": FORWARDS, "loader.py": KEEPS_ITS_LOADER}
    files["reader.py"] = READS
    code = bench.server.put_snapshot({name: textwrap.dedent(body) for name, body in files.items()})
    saved = bench.home / "saved"
    saved.mkdir()
    plan = bench.plan(
        command.replace("python", sys.executable), code=code, grace_s=60.0,
        environment_variables={"SAVED": str(saved)},
    )  # fmt: skip
    handle = bench.launch(plan)
    work = bench.node(plan) / "work"
    for name in names:
        bench.server.wait_until((work / f"ready-{name}").exists, goal=f"script {name} is ready")
    bench.server.say_stop(reason)
    bench.wait(handle, 120)
    return plan


def _times_asked(bench: Bench, names: str) -> list[int]:
    return [json.loads((bench.home / "saved" / f"saved-{name}.json").read_text()) for name in names]


def _slow(command: str) -> Any:
    return pytest.param(command, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "command",
    [
        "python train.py a",
        "python train.py a 2>&1 | tee $SAVED/log.txt",
        _slow("python train.py a > >(tee $SAVED/log.txt) 2>&1"),
        pytest.param(
            "exec > >(tee $SAVED/log.txt) 2>&1; python train.py a; echo after",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "python train.py a 2>&1 | cat | tee $SAVED/log.txt; echo after", marks=pytest.mark.slow
        ),
        "trap 'echo cleaned' EXIT; python train.py a",
        pytest.param(
            "trap 'kill -TERM $PID; wait $PID' TERM; python train.py a & PID=$!; wait $PID",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "trap 'kill -TERM $PID' TERM; python train.py a & PID=$!; wait $PID",
            marks=pytest.mark.slow,
        ),
        _slow("sleep 332 | python train.py a"),
        "python reader.py train.py a; echo after",
        _slow("mkfifo pipe; cat pipe & python train.py a >pipe 2>&1"),
        _slow("cat <(python train.py a 2>&1)"),
        _slow("mkfifo pipe; tee $SAVED/log.txt <pipe & python train.py a >pipe 2>&1"),
        _slow("timeout 600 python train.py a"),
    ],
)
def test_a_script_is_asked_once_and_saves_whole(bench: Bench, command: str) -> None:
    _stopped(bench, command, "a")
    assert _times_asked(bench, "a") == [1]
    log = bench.server.logs["user_logs/std_log.txt"].decode()
    assert "saving 1" in log and "line 199" in log
    assert "after" not in log and "Broken pipe" not in log
    if "tee" in command:
        assert "line 199" in (bench.home / "saved" / "log.txt").read_text()


def test_a_preempted_script_is_asked_as_a_canceled_one(bench: Bench) -> None:
    _stopped(bench, "python train.py a 2>&1 | tee $SAVED/log.txt", "a", "preempted")
    assert _times_asked(bench, "a") == [1]


@pytest.mark.slow
def test_scripts_of_a_launcher_that_forwards_are_asked_once(bench: Bench) -> None:
    _stopped(bench, "echo begins\npython launcher.py", "ab")
    assert _times_asked(bench, "ab") == [1, 1]


def test_scripts_of_a_shell_that_forwards_nothing_are_asked_too(bench: Bench) -> None:
    _stopped(bench, "python train.py a & python train.py b & wait", "ab")
    assert _times_asked(bench, "ab") == [1, 1]


def test_a_script_that_saves_keeps_its_children(bench: Bench) -> None:
    plan = _stopped(bench, "python loader.py", "a")
    assert _times_asked(bench, "a") == [1]
    assert bench.left(plan) == []
