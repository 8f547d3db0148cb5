"""The list of collectives that a rank gives its worker, with a stand-in for torch's recorder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import other_pythons
from torchyard.shared import collectives
from torchyard.worker.diagnosis import rank_calls
from torchyard.worker.in_rank import collectives_hook, rank_hook, rank_record

TORCH = """
import pickle, sys, types
for name in ("torch", "torch._C", "torch.distributed"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
recorder = sys.modules["torch._C._distributed_c10d"] = types.ModuleType("recorder")

def entry(number, size, done):
    return {"process_group": ("0", "default_pg"), "collective_seq_id": number, "retired": done,
            "profiling_name": "gloo:all_reduce", "input_sizes": [size], "input_dtypes": ["Float"],
            "frames": [{"filename": "/x/site-packages/torch/a.py", "line": 1},
                       {"filename": "/work/train.py", "line": number}]}

def dump(collectives, stacks, active):
    entries = [entry(n, [4], n < 70) for n in range(1, 71)]
    if not stacks:
        for each in entries:
            del each["frames"]
    return pickle.dumps({"entries": entries + [{"is_p2p": True}]})

recorder._dump_fr_trace = dump
try:
    import torch.distributed.distributed_c10d
except ImportError:
    pass
groups = sys.modules["torch.distributed.distributed_c10d"] = types.ModuleType("groups")
groups._world = types.SimpleNamespace(pg_group_ranks={1: {0: 0, 1: 1}}, pg_names={1: "0"})
print("ready", flush=True)
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / ("a-long-name-" * 12)[:120] / "rank-0"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def start(tmp_path: Path, folder: Path) -> Iterator[Start]:
    """Start a rank that goes on as `script` says."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for module, name in (
        (rank_hook, "_torchyard_rank_hook"),
        (rank_record, "_torchyard_rank_record"),
        (collectives_hook, "_torchyard_collectives"),
    ):
        shutil.copy(str(module.__file__), packages / f"{name}.py")
    (packages / "sitecustomize.py").write_text("import _torchyard_rank_hook as h; h.install()")
    ranks = []

    def run(script: str, python: str = sys.executable, size: int = 2) -> subprocess.Popen[str]:
        file = tmp_path / "train.py"
        file.write_text(TORCH + script)
        variables = {"PYTHONPATH": str(packages), "TORCHYARD_ERRORS": str(folder), "RANK": "0",
                     "WORLD_SIZE": str(size)}  # fmt: skip
        ranks.append(
            subprocess.Popen(
                [python, str(file)],
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
            )
        )
        assert ranks[-1].stdout is not None
        assert ranks[-1].stdout.readline() == "ready\n"
        return ranks[-1]

    yield run
    for rank in ranks:
        rank.kill()
        rank.communicate()


@pytest.mark.parametrize("version", other_pythons.VERSIONS)
def test_a_rank_answers_while_its_script_waits(version: str, start: Start, folder: Path) -> None:
    start("input()", python=other_pythons.python(version))
    (body,) = rank_calls.ask([folder], 30.0, with_lines=True)[0]
    (group,) = body["groups"]
    assert (body["rank"], body["ended"], group["ranks"]) == ("0", False, [0, 1])
    assert len(group["calls"]) == 48
    assert group["calls"][-1] == {
        "number": 70, "name": "gloo:all_reduce", "shapes": "[4] float", "done": False,
        "where": "/work/train.py line 70",
    }  # fmt: skip
    (body,) = rank_calls.ask([folder], 30.0)[0]
    assert body["groups"][0]["calls"][-1]["where"] == ""


def test_a_rank_that_fails_leaves_its_list_with_the_line_of_its_error(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    rank = start("def step():\n    raise ValueError('bad')\nstep()\n")
    assert rank.wait(60) == 1
    (body,) = rank_calls.ask([folder], 30.0)[0]
    line = (TORCH + "def step():\n    raise").count("\n") + 1
    assert body["ended"] and body["where"] == f"{tmp_path}/train.py line {line}"
    assert body["groups"][0]["calls"][-1]["number"] == 70


def test_one_that_holds_the_lock_of_python_does_not_delay_the_others(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    start("import ctypes; ctypes.PyDLL(None).sleep(600)")
    while rank_calls.ask([folder], 0.5)[0]:
        pass  # It has not come to that line yet.


def test_a_single_process_has_no_socket(start: Start, folder: Path) -> None:
    start("input()", size=1)
    assert not list(folder.glob("*.calls*"))


def test_the_script_sees_no_thread_and_gets_its_signals(start: Start, folder: Path) -> None:
    script = (
        "import os, signal, threading, time\n"
        "got = []\nsignal.signal(signal.SIGUSR1, lambda *_: got.append(1))\n"
        "for _ in range(50): os.kill(os.getpid(), signal.SIGUSR1)\n"
        "print(threading.active_count(), len(got) > 0, flush=True)\ninput()"
    )
    rank = start(script)
    assert rank.stdout is not None and rank.stdout.readline() == "1 True\n"


@pytest.mark.parametrize("content", ["", "{", "[1]", '"x"', "[" * 100_000, json.dumps({"a": 1})])
def test_what_a_rank_makes_of_its_file_is_read_as_far_as_it_goes(
    content: str, folder: Path
) -> None:
    (folder / "7.calls-at-end").write_text(content)
    found: list[dict[str, Any]] = rank_calls.ask([folder], 1.0)[0]
    assert found == ([{"a": 1}] if content.startswith('{"a"') else [])


def test_a_socket_that_floods_is_cut_off(start: Start, folder: Path) -> None:
    start("pass")
    script = (
        "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\nos.chdir(sys.argv[1])\n"
        "s.bind('8.calls')\ns.listen()\nprint('ready', flush=True)\n"
        "c = s.accept()[0]\nwhile True: c.sendall(b'x' * 65536)\n"
    )
    flooding = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert flooding.stdout is not None and flooding.stdout.readline()
        assert rank_calls.ask([folder], 60.0)[0] == []
        assert flooding.wait(60)
    finally:
        flooding.kill()
        flooding.communicate()


NCCL = """
def call(number, state, name="nccl:_allgather_base"):
    return {"process_group": ("1", "tensor_parallel"), "collective_seq_id": number, "state": state,
            "retired": False, "profiling_name": name, "input_sizes": [[2, 3], [7]],
            "input_dtypes": ["BFloat16", "Int"], "is_p2p": False, "pg_id": 1,
            "time_created_ns": 1, "frames": [{"filename": "/work/model.py", "line": 9}]}

recorder._dump_nccl_trace = lambda *_: pickle.dumps(
    {"version": "2.5", "entries": [call(1, "completed"), call(2, "started")]}
)
input()
"""


def test_what_ran_on_gpus_is_listed_by_its_state(start: Start, folder: Path) -> None:
    # As torch 2.4 to 2.13 write them; of NCCL's own there is none without a GPU.
    start(NCCL)
    names: list[str] = []
    while "1" not in names:
        (body,) = rank_calls.ask([folder], 30.0, with_lines=True)[0]
        names = [group["name"] for group in body["groups"]]
    calls = collectives.from_json(0, body).groups["1"]
    assert [(call.number, call.name, call.done) for call in calls] == [
        (1, "all_gather_into_tensor", True),
        (2, "all_gather_into_tensor", False),
    ]
    assert calls[1].shapes == "[2, 3] bfloat16, [7] int"
    assert calls[1].where == "/work/model.py line 9"
