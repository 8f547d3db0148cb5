"""What an agent reads of jobs and does with them, by the official client over stdio."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.mcp.agent import Agent, running_agent
from cli.real_server import RealServer
from cli.served_workspace import PlayedJob, ServedWorkspace
from torchyard.cli.mcp import bounds
from torchyard.jobs.history.history_records import metric

READING = {"list_jobs", "show_job", "explain_failure", "read_logs", "read_metrics"}
WRITING = {"submit_job", "cancel_job", "rerun_job"}


@pytest.fixture(scope="module")
def server(shared_server: RealServer) -> ServedWorkspace:
    """One workspace for all tests here, which name their jobs differently."""
    return ServedWorkspace(shared_server)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `yard mcp` is started."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def agent(server: ServedWorkspace, folder: Path) -> Iterator[Agent]:
    with running_agent(variables(server.server, server.name), cwd=folder) as agent:
        yield agent


@pytest.fixture(scope="module")
def writer(server: ServedWorkspace, folder: Path) -> Iterator[Agent]:
    known = variables(server.server)
    options = ("--allow-writes", "-w", server.name)
    with running_agent(known, *options, handshake="auto", cwd=folder) as agent:
        yield agent


@pytest.fixture
def start(server: ServedWorkspace) -> Iterator[Callable[..., PlayedJob]]:
    """Starts jobs, which hold the nodes of the workspace no longer than their test."""
    started: dict[str, PlayedJob] = {}

    def start(name: str, **document: Any) -> PlayedJob:
        started[name] = server.start(name, **document)
        return started[name]

    yield start
    for name, job in started.items():
        if server.job(name).status not in ("Completed", "Failed", "Canceled"):
            job.complete()


def variables(server: RealServer, workspace: str = "") -> dict[str, str]:
    """What `yard mcp` is told of the server."""
    return {
        "TORCHYARD_URL": server.url,
        "TORCHYARD_TOKEN": server.token,
        "TORCHYARD_WORKSPACE": workspace,
        "TORCHYARD_HOME": str(server.home / "of-the-agent"),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }


def test_without_the_flag_no_tool_writes(
    agent: Agent, server: ServedWorkspace, start: Callable[..., PlayedJob]
) -> None:
    tools = agent.tools()
    assert set(tools) == READING
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
    assert f"`{server.name}`. They only read" in agent.instructions
    start("running")
    assert agent.refused("cancel_job", name="running") == (
        "error: `cancel_job` changes jobs, and this server only reads\n"
        "hint: the person you work for allows it by starting `yard mcp --allow-writes`"
    )
    assert agent.call("show_job", name="running")["status"] == "Starting"


def test_tools_that_write_say_so(writer: Agent) -> None:
    tools = writer.tools()
    assert set(tools) == READING | WRITING
    hints = {
        name: tool.annotations.model_dump(by_alias=True, exclude_none=True)
        for name, tool in tools.items()
        if tool.annotations
    }
    runs_code = {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }
    ends = {**runs_code, "idempotentHint": True, "openWorldHint": False}
    assert hints == {
        **{name: {"readOnlyHint": True, "openWorldHint": False} for name in READING},
        "submit_job": runs_code,
        "rerun_job": runs_code,
        "cancel_job": ends,
    }
    assert "rights of the person" in writer.instructions


def test_every_argument_is_described(writer: Agent) -> None:
    for tool in writer.tools().values():
        schema = tool.input_schema
        assert schema["additionalProperties"] is False
        assert {
            key for key, value in schema["properties"].items() if "description" not in value
        } == set()
        assert "title" not in json.dumps(schema)
        assert tool.description and tool.description.endswith(".")


def test_jobs_are_listed_by_conditions(
    agent: Agent, server: ServedWorkspace, start: Callable[..., PlayedJob]
) -> None:
    start("fails", experiment_name="other", tags={"team": "a"}).fail(3)
    server.completed("first", experiment_name="other").record(loss=0.5)
    server.completed("second", experiment_name="other").record(loss=0.25)
    listed = agent.call("list_jobs", experiment_name="other")["jobs"]
    assert [job["name"] for job in listed] == ["second", "first", "fails"]
    (failed,) = agent.call("list_jobs", status="Failed", tags={"team": None})["jobs"]
    assert failed["error"]["code"] == "rank_failed" and failed["tags"] == {"team": "a"}
    best = agent.call(
        "list_jobs",
        experiment_name="other",
        sort="metrics.loss",
        columns=["metrics.loss"],
        max_results=1,
    )
    assert [(job["name"], job["columns"]) for job in best["jobs"]] == [
        ("second", {"metrics.loss": 0.25})
    ]
    assert best["workspace"] == server.name
    assert best["left_out"] == ["further jobs: add conditions, or raise `max_results`"]
    assert agent.call("list_jobs", since="2026-01-02", owner="nobody")["jobs"] == []


def test_a_job_is_shown_with_its_file(
    agent: Agent, server: ServedWorkspace, start: Callable[..., PlayedJob]
) -> None:
    job = start("shown", command="python train.py --lr 0.1", tags={"team": "a"})
    job.record({"lr": "0.1"}, loss=0.5, nothing=math.nan)
    job.write("outputs/model.pt", b"weights")
    job.notice("something was changed")
    job.complete()
    shown = agent.call("show_job", name="shown")
    assert (shown["status"], shown["has_ended"], shown["left_out"]) == ("Completed", True, [])
    assert shown["metrics"] == {"loss": 0.5, "nothing": "NaN"}
    assert (shown["params"], shown["tags"]) == ({"lr": "0.1"}, {"team": "a"})
    assert {"path": "outputs/model.pt", "size_bytes": 7} in shown["files"]
    assert shown["notices"] == ["something was changed"]
    assert yaml.safe_load(shown["job_file"])["command"] == "python train.py --lr 0.1"
    assert shown["stages"][0]["name"] == "Preparing"
    assert shown["page"].endswith(f"/workspaces/{server.name}/jobs/shown")


def test_much_is_shortened_and_said(
    agent: Agent, server: ServedWorkspace, start: Callable[..., PlayedJob]
) -> None:
    tags = {f"t{number:03}": "y" * 2_000 for number in range(60)}
    job = start("much", command=f"echo {'x' * 50_000}", tags=tags)
    job.record({f"p{number:03}": "z" for number in range(200)})
    points = [metric(f"m{number:03}" * 50, 0.0, 1000) for number in range(100)]
    server.services.history.append(server.job("much").id, points)
    for number in range(70):
        job.write(f"outputs/{number}.txt", b"")
    job.complete()
    shown = agent.call("show_job", name="much")
    assert len(json.dumps(shown)) < 60_000
    assert shown["left_out"] == [
        "51 of 100 metrics (`read_metrics` has them)",
        "150 of 200 params",
        "31 of 60 tags",
        "20 of 70 files",
        "the end of `job_file`",
    ]
    assert shown["tags"]["t000"] == "y" * 300 + "… (1700 more characters)"
    (row,) = agent.call("list_jobs", text="much", columns=["metrics"])["jobs"]
    assert len(json.dumps(row)) < 6_000
    assert row["left_out"] == ["55 of 60 tags", "91 of 100 columns"]


def test_of_a_list_one_is_kept_however_long() -> None:
    left_out: list[str] = []
    assert bounds.first(["x" * 90, "y" * 90, "z"], "words", left_out, characters=50) == ["x" * 90]
    assert bounds.first(["x", "y"], "words", left_out, characters=50) == ["x", "y"]
    assert left_out == ["2 of 3 words"]


def test_waiting_ends_with_the_job(agent: Agent, start: Callable[..., PlayedJob]) -> None:
    job = start("waited")
    waiting = agent.begin("show_job", name="waited", wait_s=50)
    assert agent.call("show_job", name="waited", wait_s=0.01)["has_ended"] is False
    job.complete()
    assert waiting.result().structured_content["status"] == "Completed"


def test_a_failure_is_explained_in_one_answer(
    agent: Agent, start: Callable[..., PlayedJob]
) -> None:
    fail(start("dies", resources={"instance_count": 1}, distribution=RANKS))
    why = agent.call("explain_failure", name="dies")
    assert why["has_failed"] is True
    assert why["error"] == {
        "code": "rank_failed",
        "message": "rank 1 on node 0 exited with code 1: ValueError: the batch is empty",
        "hint": "look at the batch",
        "rank": 1,
        "node": 0,
        "exit_code": 1,
    }
    assert why["untrusted_output"] == {
        "exception": "ValueError: the batch is empty",
        "stack": ["train.py line 7 in step: raise ValueError"],
        "log": "user_logs/std_log_process_1.txt",
        "last_lines": "\n".join(f"line {number}" for number in range(70, 100)),
    }
    assert len(why["left_out"]) == 1 and "std_log_process_1.txt" in why["left_out"][0]


def test_of_a_job_that_did_not_fail_nothing_is_explained(
    agent: Agent, server: ServedWorkspace
) -> None:
    server.completed("fine")
    why = agent.call("explain_failure", name="fine")
    assert (why["status"], why["has_failed"]) == ("Completed", False)
    assert "error" not in why and "untrusted_output" not in why


def test_logs_are_read_by_rank_node_and_path(agent: Agent, start: Callable[..., PlayedJob]) -> None:
    job = start("speaks", resources={"instance_count": 2}, distribution=RANKS)
    for rank in range(4):
        job.log(f"rank {rank} begins\nrank {rank} ends\n".encode(), f"std_log_process_{rank}.txt")
    job.log(b"stack of rank 3\n", "stacks_rank_3.txt")

    def logs(**arguments: Any) -> list[tuple[int, int, str]]:
        answer = agent.call("read_logs", name="speaks", **arguments)
        return [(log["rank"], log["node"], log["untrusted_output"]) for log in answer["logs"]]

    ends = [(rank, rank // 2, f"rank {rank} ends") for rank in range(4)]
    assert logs(lines=1) == ends
    assert logs(lines=1, node=1) == ends[2:]
    assert logs(rank=3) == [(3, 1, "rank 3 begins\nrank 3 ends")]
    answer = agent.call("read_logs", name="speaks", path="user_logs/stacks_rank_3.txt")
    assert [log["untrusted_output"] for log in answer["logs"]] == ["stack of rank 3"]
    assert "user_logs/stacks_rank_3.txt" in agent.call("read_logs", name="speaks")["other_logs"]
    assert agent.refused("read_logs", name="speaks", rank=9) == (
        "error: no such rank or node of job `speaks` has written anything\n"
        "hint: ranks that have: 0, 1, 2, 3"
    )
    assert "has no file `nope.txt`" in agent.refused("read_logs", name="speaks", path="nope.txt")


def test_the_ends_of_many_logs_share_one_answer(
    agent: Agent, start: Callable[..., PlayedJob]
) -> None:
    job = start("many", distribution={"type": "pytorch", "process_count_per_instance": 12})
    for rank in range(12):
        job.log(b"0123456789\n" * 10_000, f"std_log_process_{rank:02}.txt")
    answer = agent.call("read_logs", name="many", lines=1000)
    assert [log["rank"] for log in answer["logs"]] == list(range(8))
    sizes = [len(log["untrusted_output"]) for log in answer["logs"]]
    assert sum(sizes) <= bounds.LOG_CHARACTERS and min(sizes) > 2_000
    assert answer["left_out"][0] == "4 of 12 logs" and len(answer["left_out"]) == 9


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J\n", "red \ufffd]0;title\ufffd\ufffd[2J"),
        (b"10%\r50%\r100%\n", "100%"),
        (b"\x00\x01\xff\xfe\x80 \xe2\x80\xaereversed\n", "\ufffd" * 5 + " \ufffdreversed"),
        (b"", ""),
        (b"\n\n", "\n"),
    ],
    ids=["escapes", "progress", "binary", "empty", "blank"],
)
def test_a_hostile_log_is_plain(
    agent: Agent,
    start: Callable[..., PlayedJob],
    content: bytes,
    shown: str,
    request: pytest.FixtureRequest,
) -> None:
    name = request.node.callspec.id
    start(name).log(content)
    (log,) = agent.call("read_logs", name=name)["logs"]
    assert log["untrusted_output"] == shown


def test_a_line_of_a_megabyte_is_shortened(agent: Agent, start: Callable[..., PlayedJob]) -> None:
    job = start("endless")
    job.log(b"begins\n" + b"x" * (1 << 20))
    answer = agent.call("read_logs", name="endless")
    (log,) = answer["logs"]
    half = "x" * (bounds.LINE_CHARACTERS // 2)
    assert log["untrusted_output"] == f"{half} … {half}"
    assert answer["left_out"] == [
        "earlier lines of `user_logs/std_log.txt`, or the middle of lines longer than 2000 "
        "characters"
    ]


def test_texts_of_a_job_have_no_control_characters(
    agent: Agent, start: Callable[..., PlayedJob]
) -> None:
    job = start("painted", display_name="\x1b[31mred\x07", tags={"a": "b\x1b[2Jc"})
    job.notice("\x1b[31mnotice\x1b[0m\x07")
    job.complete()
    shown = agent.call("show_job", name="painted")
    assert shown["display_name"] == "red\ufffd"
    assert shown["notices"] == ["notice\ufffd"]
    assert all("\x1b" not in str(value) and "\x07" not in str(value) for value in shown.values())


def test_metrics_are_keys_then_series(
    agent: Agent, server: ServedWorkspace, start: Callable[..., PlayedJob]
) -> None:
    start("measured")
    points = [metric("loss", value, step) for step, value in enumerate((0.5, math.inf, 0.25))]
    server.services.history.append(server.job("measured").id, points)
    keys = agent.call("read_metrics", name="measured")
    assert [(row["key"], row["count"], row["last_value"]) for row in keys["keys"]] == [
        ("loss", 3, 0.25)
    ]
    (series,) = agent.call("read_metrics", name="measured", keys=["loss"], x="time")["series"]
    assert [value for _, value in series["points"]] == [0.5, "Infinity", 0.25]
    assert agent.refused("read_metrics", name="measured", keys=["loss", "acc"]) == (
        "error: job `measured` has no metric `acc`\nhint: `read_metrics` without `keys` lists them"
    )


def test_a_long_series_comes_as_ranges(
    agent: Agent, server: ServedWorkspace, start: Callable[..., PlayedJob]
) -> None:
    job = start("long")
    points = [metric("loss", float(step), 1000, step) for step in range(5_000)]
    server.services.history.append(server.job("long").id, points)
    job.complete()
    answer = agent.call("read_metrics", name="long", keys=["loss"], max_points=100)
    (series,) = answer["series"]
    assert series["count"] == 5_000 and "points" not in series
    assert 2 <= len(series["ranges"]) <= 100
    assert (series["ranges"][0][1], series["ranges"][-1][2]) == (0.0, 4999.0)
    assert answer["left_out"] == ["single points of `loss`: `ranges` cover 5000 points"]
    (part,) = agent.call("read_metrics", name="long", keys=["loss"], start=10, end=12)["series"]
    assert part["points"] == [[10, 10.0], [11, 11.0], [12, 12.0]]


@pytest.mark.parametrize("tool", sorted((READING | WRITING) - {"list_jobs", "submit_job"}))
def test_a_job_that_does_not_exist_is_an_error_with_a_hint(writer: Agent, tool: str) -> None:
    error = writer.refused(tool, name="never-made")
    assert error.startswith("error: job `never-made` does not exist") and "\nhint: " in error


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        (
            "list_jobs",
            {"experiment": "digits"},
            "error: `list_jobs` has no argument `experiment`\nhint: did you mean "
            "`experiment_name`?",
        ),
        (
            "show_job",
            {},
            "error: `show_job` needs the argument `name`\nhint: The job's name.",
        ),
        (
            "list_jobs",
            {"max_results": 1000},
            "error: argument `max_results` of `list_jobs`: Input should be less than or equal to "
            "100\nhint: List at most so many.",
        ),
        (
            "show_jobs",
            {},
            "error: there is no tool `show_jobs`\nhint: did you mean `show_job`?",
        ),
        (
            "list_jobs",
            {"since": "soon"},
            "error: `soon` is not a time",
        ),
    ],
)
def test_a_wrong_call_is_an_error_with_a_hint(
    agent: Agent, tool: str, arguments: dict[str, Any], error: str
) -> None:
    assert agent.refused(tool, **arguments).startswith(error)


def test_a_job_file_is_submitted_by_path_or_text(
    writer: Agent, server: ServedWorkspace, folder: Path
) -> None:
    code = folder / "digits" / "src"
    code.mkdir(parents=True)
    (code / "train.py").write_text("print('trains')\n")
    text = "command: python train.py\nenvironment: python\ncode: src\n"
    (code.parent / "job.yml").write_text(text)
    by_path = writer.call("submit_job", path="digits/job.yml", name="by-path")
    by_text = writer.call("submit_job", yaml=text, folder=str(code.parent), name="by-text")
    assert (by_path["name"], by_text["name"]) == ("by-path", "by-text")
    with server.client() as client:
        for name in ("by-path", "by-text"):
            assert [file.path for file in client.jobs.code(name)] == ["train.py"]
    again = writer.call("submit_job", path="digits/job.yml", name="by-path")
    assert "nothing was submitted" in again["notices"][-1]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            {"yaml": "command: true\ncomand: false\n", "folder": "."},
            "error: yaml:2:1: unknown key `comand`\nhint: did you mean `command`?",
        ),
        ({"yaml": "command: [", "folder": "."}, "error: yaml:2:1: "),
        ({"yaml": "command: 'true'"}, "error: `yaml` needs `folder`\nhint: "),
        ({"yaml": "command: 'true'", "folder": "nope"}, "error: `nope` is not a folder\nhint: "),
        ({"path": "nope.yml"}, "error: the file `nope.yml` does not exist\nhint: "),
        ({}, "error: `submit_job` takes either `path` or `yaml`\nhint: "),
        (
            {"path": "a.yml", "yaml": "b"},
            "error: `submit_job` takes either `path` or `yaml`\nhint: ",
        ),
    ],
)
def test_a_wrong_job_file_is_refused_and_nothing_runs(
    writer: Agent, server: ServedWorkspace, arguments: dict[str, str], error: str
) -> None:
    with server.client() as client:
        before = client.jobs.list(max_results=None)
        assert writer.refused("submit_job", **arguments).startswith(error)
        assert client.jobs.list(max_results=None) == before


def test_a_job_is_canceled_and_run_again_with_changes(
    writer: Agent, server: ServedWorkspace, start: Callable[..., PlayedJob]
) -> None:
    start("tried", command="echo ${{inputs.lr}}", inputs={"lr": 0.1})
    canceled = writer.call("cancel_job", name="tried")
    assert canceled["status"] == "CancelRequested"
    again = writer.call("rerun_job", name="tried", set={"inputs.lr": 0.01}, new_name="again")
    assert again["name"] == "again"
    assert server.document("again")["inputs"]["lr"] == 0.01
    assert "is not the path of a value" in writer.refused("rerun_job", name="tried", set={"": 1})


def test_a_server_that_is_gone_is_an_error_with_a_hint(tmp_path: Path) -> None:
    server = RealServer(tmp_path / "server")
    try:
        with running_agent(variables(server), cwd=tmp_path) as agent:
            assert agent.call("list_jobs")["jobs"] == []
            server.stop()
            error = agent.refused("list_jobs")
            assert error.startswith(f"error: no torchyard server answers at `{server.url}`")
            assert "\nhint: " in error
    finally:
        server.stop()


def test_no_server_is_started_before_a_tool_is_called(tmp_path: Path) -> None:
    home = tmp_path / "home"
    known = {"TORCHYARD_HOME": str(home), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    with running_agent(known, cwd=tmp_path) as agent:
        assert set(agent.tools()) == READING
    assert not home.exists()


RANKS = {"type": "pytorch", "process_count_per_instance": 2}


def fail(job: PlayedJob) -> None:
    """Rank 1 raises an exception after a hundred lines."""
    job.run()
    job.log(b"".join(b"line %d\n" % number for number in range(100)), "std_log_process_1.txt")
    job.log(b"waits\n", "std_log_process_0.txt")
    details = {
        "rank": 1,
        "node": 0,
        "exit_code": 1,
        "exception": "ValueError: the batch is empty",
        "frames": [{"file": "train.py", "line": 7, "function": "step", "code": "raise ValueError"}],
    }
    error = {
        "code": "rank_failed",
        "message": "rank 1 on node 0 exited with code 1: ValueError: the batch is empty",
        "hint": "look at the batch",
        "details": details,
    }
    job.worker.tell("rank_exited", rank=1, local_rank=1, exit_code=1, signal=None)
    job.worker.tell("node_finalizing")
    job.worker.tell("node_exited", exit_code=1, error=error)
