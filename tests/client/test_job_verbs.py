"""What can be done with a job, through the SDK and the real server."""

from __future__ import annotations

import io
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.relay import Relay
from cli.served_workspace import PlayedJob, ServedWorkspace
from eventually import eventually
from torchyard import (
    BuildFailed,
    Client,
    InvalidInput,
    Job,
    JobFailed,
    JobSummary,
    NotAuthenticated,
    NotFound,
    Timeout,
    Unreachable,
)
from torchyard.base.settings import Settings
from torchyard.client import job as job_module
from torchyard.client.streams import follow
from torchyard.client.times import Deadline


@pytest.fixture
def client(server: ServedWorkspace) -> Iterator[Client]:
    with server.client() as made:
        yield made


@pytest.fixture
def running(server: ServedWorkspace) -> PlayedJob:
    job = server.start("a").run()
    job.log(b"one\n")
    return job


def soon(action: Callable[[], None], seconds: float = 0.3) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def test_fields_are_typed(client: Client, server: ServedWorkspace) -> None:
    created_at = server.services.clock.now()
    played = server.start("a", distribution={"type": "pytorch", "process_count_per_instance": 4})
    server.advance(1)
    played.run().record({"lr": "0.1"}, l=math.nan)
    played.write("outputs/m.pt", b"weights")
    path = "azureml://jobs/a/outputs/artifacts/paths/outputs/m.pt"
    client.models.create({"name": "digits", "path": path})
    details = {"rank": 1, "node": 0, "log_lines": ["x", "y"]}
    error = {"code": "oom", "message": "out of memory", "hint": "use less", "details": details}
    played.worker.tell("node_exited", exit_code=1, error=error)
    job = client.jobs.get("a")
    assert job.created_at == created_at
    assert job.started_at and (job.started_at - job.created_at).total_seconds() == 1
    assert (job.node_count, job.ranks_per_node, job.has_ended) == (1, 4, True)
    assert job.error and (job.error.code, job.error.rank, job.error.log_lines) == (
        *("oom", 1),
        ("x", "y"),
    )
    assert job.stages[-1].name == "Running" and job.stages[-1].ended_at
    assert job.last_metrics["l"] != job.last_metrics["l"] and job.params == {"lr": "0.1"}
    assert job.models == ("digits:1",) and job.raw["owner"] == server.job("a").owner
    (row,) = client.jobs.list()
    assert type(row) is JobSummary and type(row.refresh()) is Job


def test_wait_returns_the_ended_job(
    client: Client, server: ServedWorkspace, running: PlayedJob
) -> None:
    job = client.jobs.get("a")
    timer = soon(lambda: running.fail(3))
    ended = job.wait(timeout_s=60)
    timer.join()
    assert (job.status, ended.status, ended.exit_code) == ("Running", "Failed", 3)
    with pytest.raises(JobFailed, match=r"^job `a` failed: rank 0 exited with code 3\n") as caught:
        client.jobs.wait("a", check=True)
    assert caught.value.job == ended
    canceled = server.start("b").run()
    client.jobs.cancel("b")
    canceled.fail(15, "canceled")
    with pytest.raises(JobFailed, match="was canceled"):
        client.jobs.wait("b", check=True)
    server.completed("c")
    assert client.jobs.wait("c", check=True).status == "Completed"


def test_wait_outlives_a_server_that_is_unreachable(
    server: ServedWorkspace, running: PlayedJob, tmp_path: Path
) -> None:
    relay = Relay(server.url, path="/jobs/a")
    settings = Settings(tmp_path, relay.url, server.token)

    def stop_for_a_moment() -> None:
        relay.stop()
        relay.cuts = [1]  # of what is connected, too
        time.sleep(0.3)
        running.complete()
        relay.start()

    with Client(workspace=server.name, settings=settings) as client:
        job = client.jobs.get("a")
        relay.stop()
        client.transport.close()
        with pytest.raises(Unreachable):
            job.wait()
        relay.start()
        timer = soon(stop_for_a_moment)
        assert job.wait(timeout_s=60).status == "Completed"
        timer.join()
    relay.stop()


def test_a_timeout_leaves_the_job_running(client: Client, running: PlayedJob) -> None:
    job = client.jobs.get("a")
    waits: tuple[Callable[[], object], ...] = (
        lambda: job.wait(timeout_s=0.2),
        lambda: job.stream(timeout_s=0.2, out=io.BytesIO()),
        lambda: client.jobs.stream("a", timeout_s=0.2, out=io.BytesIO()),
    )
    for wait in waits:
        with pytest.raises(Timeout, match=r"job `a` has not ended after 0.2 s") as caught:
            wait()
        assert "yard job cancel a" in caught.value.hint
    assert job.refresh().status == "Running"
    # The connection is as patient as before, and usable.
    assert client.jobs.list()[0].name == "a"


@pytest.fixture
def terminal() -> Iterator[None]:
    """Ctrl-C interrupts, also where the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("verb", ["wait", "stream"])
def test_ctrl_c_leaves_the_job_running_and_says_how_to_go_on(
    client: Client, server: ServedWorkspace, running: PlayedJob, verb: str, terminal: None
) -> None:
    job = client.jobs.get("a")
    request_count = len(server.requests)

    def interrupt() -> None:
        eventually(lambda: len(server.requests) > request_count, "the verb to ask the server")
        # To the process, as by a terminal: a thread's own signal interrupts no wait of another.
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt, match=r"job `a` keeps running.*yard job stream a"):
        job.wait() if verb == "wait" else job.stream(out=io.BytesIO())
    interrupting.join()
    assert job.refresh().status == "Running"


def test_stream_prints_and_returns_the_ended_job(client: Client, running: PlayedJob) -> None:
    running.complete()
    out = io.BytesIO()
    assert client.jobs.get("a").stream(out=out, timeout_s=60).status == "Completed"
    assert out.getvalue() == b"one\n"


def test_a_stream_that_is_cut_ends_at_the_deadline() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    opened = []

    class Cut:
        def __enter__(self) -> Cut:
            opened.append(now[0])
            return self

        def __exit__(self, *error: object) -> None: ...

        def read1(self, n: int = -1, /) -> bytes:
            raise ConnectionResetError

    deadline = Deadline(3.0, "job `a` has not ended", "wait longer", lambda: now[0])
    with pytest.raises(Timeout, match="after 3 s"):
        list(follow(lambda at: Cut(), deadline=deadline, sleep=sleep, clock=lambda: now[0]))
    assert now[0] == 3.0 and len(opened) > 3


def test_cancel_update_and_refresh_return_new_jobs(client: Client, running: PlayedJob) -> None:
    job = client.jobs.get("a")
    assert job.cancel().status == "CancelRequested" and job.status == "Running"
    assert job.refresh().status == "CancelRequested"
    changed = client.jobs.update("a", display_name="new", tags={"k": "v"}, description="mine")
    assert (changed.display_name, changed.tags, changed.description) == ("new", {"k": "v"}, "mine")
    assert client.jobs.update("a").display_name == "new"


def test_logs_are_one_text_or_by_rank(client: Client, server: ServedWorkspace) -> None:
    server.start("a").log("größe\n".encode())
    job = client.jobs.get("a")
    assert job.logs() == job.logs(rank=0) == "größe\n"
    played = server.start("b")
    for rank in (1, 0, 10):
        played.log(b"a\nb", f"std_log_process_{rank:02}.txt")
    job = client.jobs.get("b")
    assert job.logs() == "[0] a\n[0] b\n[1] a\n[1] b\n[10] a\n[10] b\n"
    assert job.logs(rank=10) == "a\nb"
    with pytest.raises(NotFound, match="rank 2 of job `b`") as caught:
        job.logs(rank=2)
    assert caught.value.hint == "ranks that have: 0, 1, 10"


def test_download_and_files(client: Client, server: ServedWorkspace, tmp_path: Path) -> None:
    played = server.start("a", outputs={"model": {}})
    played.write("outputs/model.pt", b"weights")
    played.write_output("model", "m.bin", b"named")
    job = client.jobs.get("a")
    assert [(file.path, file.size_bytes) for file in job.files()] == [("outputs/model.pt", 7)]
    assert [(file.output, file.path) for file in job.outputs()] == [("model", "m.bin")]
    written = job.download(tmp_path / "to", everything=True, timeout_s=60)
    assert [file.read_bytes() for file in written] == [b"weights", b"named"]
    assert written[1] == tmp_path / "to/named-outputs/model/m.bin"
    with pytest.raises(NotFound, match="no output `x`"):
        job.download(tmp_path, output_name="x")


@pytest.mark.parametrize("count", [1, 30], ids=["one by one", "by several threads"])
def test_a_download_ends_at_its_deadline(
    client: Client, server: ServedWorkspace, tmp_path: Path, count: int
) -> None:
    played = server.start("a")
    for number in range(count):
        played.write(f"outputs/{number}.bin", b"x" * 100_000)
    with pytest.raises(Timeout, match=rf"{count} files are not downloaded after 1e-09 s"):
        client.jobs.get("a").download(tmp_path / "to", timeout_s=1e-9)
    assert not [path for path in (tmp_path / "to").rglob("*") if path.is_file()]


def test_a_client_says_what_it_lacks(server: ServedWorkspace, tmp_path: Path) -> None:
    settings = Settings(tmp_path / "home")
    with pytest.raises(Unreachable, match="no torchyard server runs on this machine") as caught:
        Client(settings=settings, start=False)
    assert "start=False" in caught.value.hint
    with pytest.raises(NotAuthenticated, match="no token") as refused:
        Client(url=server.url, settings=settings)
    assert refused.value.hint.endswith("or give `token`")
    with pytest.raises(InvalidInput, match="is not a server's address"):
        Client(url="localhost:1", token="x", settings=settings)
    url = server.url + "/"
    with Client(url=url, token=server.token, workspace=server.name, settings=settings) as client:
        assert client.jobs.list() == [] and client.workspace == server.name


def test_a_token_is_not_sent_to_another_server(server: ServedWorkspace, tmp_path: Path) -> None:
    elsewhere = Settings(tmp_path / "home", "https://elsewhere:1", "yard_p_secret")
    with pytest.raises(NotAuthenticated):
        Client(url=server.url, settings=elsewhere)
    # One that is set without a server is for the one that is named.
    alone = Settings(tmp_path / "home", token=server.token)
    with Client(url=server.url, settings=alone) as client:
        assert client.transport.token == server.token


def test_a_build_ends_at_its_deadline(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"status": "building", "log": "", "next_offset": 0, "hash": "h"}
    monkeypatch.setattr(client.transport, "call", lambda *a, **k: state)
    logged: list[str] = []
    with pytest.raises(Timeout, match=r"the environment is not built after 0.05 s"):
        client.environments.build("python", logged.append, timeout_s=0.05)
    state |= {"status": "failed", "error": "no such package", "hint": "spell it"}
    with pytest.raises(BuildFailed, match="no such package"):
        client.environments.build("python", logged.append)


def test_leaving_is_quiet_without_ctrl_c() -> None:
    with job_module.leaving("a"):
        pass
