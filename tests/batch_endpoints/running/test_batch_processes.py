"""Scoring processes and the connection between nodes, against scripts and peers that misbehave."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchyard.batch_endpoints.running.in_job import input_files, nodes, scoring_process
from torchyard.batch_endpoints.running.in_job.coordinator import Coordinator
from torchyard.batch_endpoints.running.in_job.link import Link, LinkLost
from torchyard.batch_endpoints.running.in_job.processes import ScoringProcess, ScriptFailed
from torchyard.batch_endpoints.running.in_job.progress import Progress

Start = Callable[..., ScoringProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[ScoringProcess] = []

    def begin(script: str, timeout_s: float = 60) -> ScoringProcess:
        (tmp_path / "score.py").write_text(script)
        settings: Any = SimpleNamespace(
            script="score.py", timeout_s=timeout_s, logging_level="info", appends_rows=True
        )
        variables = dict(
            os.environ, AML_APP_ROOT=str(tmp_path), AZUREML_ENTRY_SCRIPT="score.py",
            MARK=str(tmp_path / "mark"),
        )  # fmt: skip
        made.append(ScoringProcess(settings, variables))
        return made[-1]

    yield begin
    for each in made:
        each.close(is_kind=False)


def test_rows_come_back_and_shutdown_is_called(start: Start, tmp_path: Path) -> None:
    process = start(
        "import os, sys\n"
        "def init(): print('between')\n"
        "def run(batch):\n    print('answers', flush=True)\n    return [[p, 1] for p in batch]\n"
        "def shutdown(): open(os.environ['MARK'], 'w').close()\n"
    )
    assert process.run(["a", "b"]) == {"rows": ["['a', 1]", "['b', 1]"], "count": 2}
    assert process.run([]) == {"rows": [], "count": 0}
    process.close()
    assert (tmp_path / "mark").exists()


def test_a_generator_is_read_and_its_error_has_a_place(start: Start) -> None:
    process = start(
        "def init(): pass\ndef run(batch):\n    for p in batch:\n"
        "        if p == 'b':\n            raise ValueError('bad')\n        yield p\n"
    )
    assert process.run(["a"])["rows"] == ["a"]
    assert process.run(["a", "b"])["error"] == "ValueError: bad (score.py, line 5, in run)"
    assert process.run(["c"])["rows"] == ["c"]


@pytest.mark.parametrize(
    ("result", "message"), [("None", "nothing"), ("'text'", "str"), ("{}", "dict"), ("3", "int")]
)
def test_what_is_not_a_list_is_an_error(start: Start, result: str, message: str) -> None:
    process = start(f"def init(): pass\ndef run(batch): return {result}\n")
    error = process.run(["a"])["error"]
    assert error.startswith(f"run() returned {message}: it returns a list")


def test_a_call_that_takes_too_long_is_killed_and_the_next_one_answered(start: Start) -> None:
    process = start(
        "import os, time\ndef init(): pass\ndef run(batch):\n"
        "    if batch == ['slow']:\n        time.sleep(600)\n    return batch\n",
        timeout_s=3,
    )
    assert "longer than 3 s" in process.run(["slow"])["error"]
    assert process.run(["fast"])["rows"] == ["fast"]


@pytest.mark.parametrize(
    ("end", "text"),
    [("os.kill(os.getpid(), 9)", "killed by SIGKILL"), ("os._exit(7)", "ended with code 7")],
)
def test_a_process_that_ends_is_started_again(start: Start, end: str, text: str) -> None:
    process = start(
        f"import os\ndef init(): pass\ndef run(batch):\n    if batch == ['x']: {end}\n"
        "    return batch\n"
    )
    assert text in process.run(["x"])["error"]
    assert process.run(["y"])["rows"] == ["y"]


def test_a_process_that_leaves_a_child_with_its_pipe_is_noticed(start: Start) -> None:
    process = start(
        "import os, time\ndef init(): pass\ndef run(batch):\n"
        "    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(3)\n"
    )
    assert "ended with code 3" in process.run(["x"])["error"]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("def init(): raise OSError('no')\ndef run(b): pass\n", "OSError: no (score.py, line 1"),
        ("def run(b): pass\n", "it does not define init()"),
        ("def init(): pass\n", "it does not define run()"),
        ("import nowhere\n", "No module named 'nowhere'"),
        ("def init(:\n", "SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("import os\ndef init(): os._exit(1)\ndef run(b): pass\n", "while init() ran, 3 times"),
    ],
)
def test_a_script_that_cannot_start_says_why(start: Start, script: str, text: str) -> None:
    with pytest.raises(ScriptFailed) as raised:
        start(script).run(["a"])
    assert str(raised.value).startswith("`score.py`: ") and text in str(raised.value)


def test_modules_of_the_program_hide_none_of_the_environment(start: Start) -> None:
    process = start(
        "def init():\n    try:\n        import coordinator\n"
        "    except ImportError:\n        return\n    raise AssertionError\ndef run(b): return b\n"
    )
    assert process.run(["a"])["rows"] == ["a"]


def test_a_row_is_one_line() -> None:
    assert scoring_process.line_of('a "b"\nc') == '"a ""b""\nc"'
    assert scoring_process.line_of(["x", 1]) == "['x', 1]"


def test_a_table_lists_its_own_files(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "sub/c.csv", "d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    text = "type: mltable\npaths:\n  - file: ./b.csv\n  - pattern: 'sub/*.csv'\n"
    text += "other:\n  - file: d.txt\n"
    (tmp_path / "MLTable").write_text(text)
    assert input_files.find(str(tmp_path), "mltable")[1] == ["b.csv", "sub/c.csv"]
    assert input_files.find(str(tmp_path / "a.csv"), "uri_file") == (str(tmp_path), ["a.csv"])


def test_an_input_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(input_files.InputFailed, match="has no files"):
        input_files.find(str(tmp_path), "uri_folder")
    with pytest.raises(input_files.InputFailed, match="no file `MLTable`"):
        input_files.find(str(tmp_path), "mltable")


opened: list[Progress] = []


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(probe.getsockname()[1]))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")
    yield
    while opened:
        opened.pop().close()


def first_node(tmp_path: Path, count: int, processes: int = 1) -> tuple[Coordinator, nodes.Server]:
    files = [f"f{number}" for number in range(count)]
    settings: Any = SimpleNamespace(
        records=str(tmp_path), output=str(tmp_path), predictions=str(tmp_path / "p.csv"),
        appends_rows=True, mini_batch_size=1, max_retries=0, error_threshold=-1,
        splits_failed_batches=True, node_count=2, processes=processes,
    )  # fmt: skip
    progress = Progress(settings, files)
    opened.append(progress)
    coordinator = Coordinator(settings, files, progress)
    return coordinator, nodes.Server(coordinator, settings)


def test_another_node_scores_what_the_first_one_gives_out(job: None, tmp_path: Path) -> None:
    coordinator, server = first_node(tmp_path, 5)
    nodes.follow(lambda files: {"rows": files, "count": len(files)})
    server.close(30)
    assert coordinator.is_over and not coordinator.failure
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert sorted(lines) == ["f0", "f1", "f2", "f3", "f4"]


def test_what_a_lost_node_had_is_given_to_another_one(job: None, tmp_path: Path) -> None:
    coordinator, server = first_node(tmp_path, 3)
    link = Link(socket.create_connection(nodes._address()), is_server=False)
    link.prove()
    link.send({})
    assert link.receive() == {"files": ["f0"]}
    link.close()
    nodes.follow(lambda files: {"rows": files, "count": len(files)})
    server.close(30)
    assert sorted((tmp_path / "p.csv").read_text().splitlines()) == ["f0", "f1", "f2"]
    assert coordinator.is_over


def test_the_first_node_stays_until_each_scoring_process_knows_the_end(
    job: None, tmp_path: Path
) -> None:
    _, server = first_node(tmp_path, 1, processes=2)
    second = Link(socket.create_connection(nodes._address()), is_server=False)
    second.prove()
    nodes.follow(lambda files: {"rows": files, "count": len(files)})
    closing = threading.Thread(target=server.close, args=(30,))
    closing.start()
    closing.join(1)
    assert closing.is_alive()
    second.send({})
    assert second.receive() == {"end": True}
    second.close()
    closing.join()


def test_a_failure_of_another_node_fails_the_job(job: None, tmp_path: Path) -> None:
    coordinator, server = first_node(tmp_path, 3)
    nodes.follow(lambda files: {"failed": "no model"})
    server.close(30)
    assert coordinator.failure == "no model"


@pytest.mark.parametrize(
    "sent", [b"", b"\n", b"x" * 5000, b"\xff\xfe\n\n\n", b'{"node": 1}\n{"node": 1}\n']
)
def test_who_does_not_know_the_token_gets_nothing(job: None, tmp_path: Path, sent: bytes) -> None:
    coordinator, server = first_node(tmp_path, 3)
    with socket.create_connection(nodes._address()) as hostile:
        hostile.sendall(sent)
        hostile.shutdown(socket.SHUT_WR)
        received = b""
        while block := hostile.recv(4096):
            received += block
    assert b"files" not in received
    assert coordinator.next(0) is not None
    server.close(0)


def test_proofs_of_two_connections_cannot_be_exchanged(job: None, tmp_path: Path) -> None:
    _, server = first_node(tmp_path, 3)
    pair = [socket.create_connection(nodes._address()) for _ in range(2)]
    files = [each.makefile("rb") for each in pair]
    greetings = [file.readline() for file in files]
    pair[0].sendall(greetings[1])
    pair[1].sendall(greetings[0])
    proofs = [file.readline() for file in files]
    pair[0].sendall(proofs[1])
    pair[1].sendall(proofs[0])
    for each, file in zip(pair, files, strict=True):
        assert file.readline() == b""
        file.close()
        each.close()
    server.close(0)


def test_a_wrong_token_is_noticed_by_both(job: None, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair()
    ends: list[str] = []

    def other() -> None:
        link = Link(there, is_server=True)
        try:
            link.prove()
        except LinkLost as error:
            ends.append(str(error))
        link.close()

    link = Link(here, is_server=False)
    monkeypatch.setattr(link, "_roles", ("client", "nobody"))
    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(LinkLost, match="not a node of this job"):
        link.prove()
    link.close()
    thread.join()
