"""The router's process: its table, its end, its return."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import torchyard
from endpoints.router.router_process import RouterProcess, send, wait_until
from torchyard.endpoints.router.control import RouterAway, ask, take_over
from torchyard.endpoints.router.table import BrokenTable, DeploymentRow, Table, parse, to_text

pytestmark = pytest.mark.slow

ONE_DATABASE = True


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"version": 9}', b"\xff\xfe", b"[" * 99999])
def test_a_broken_table_changes_nothing_and_is_logged(router: RouterProcess, text: bytes) -> None:
    server = router.model("blue-1")
    router.write({"blue": DeploymentRow((server.row(),))})
    router.write_text(text)
    wait_until(lambda: "the table can't be used" in router.log())
    assert router.request().status == 200
    router.write({"green": DeploymentRow((server.row(),))})
    assert router.request().headers["azureml-model-deployment"] == "green"


def test_a_broken_endpoint_goes_on_as_it_was_and_the_others_change(router: RouterProcess) -> None:
    server = router.model("blue-1")
    router.write({"blue": DeploymentRow((server.row(),))})
    text = to_text(Table(version=7, endpoints=parse(_table(router)).endpoints))
    broken = text.replace(b'"socket": "/', b'"socket": "')
    router.write_text(broken)
    wait_until(lambda: router.ask("hello")["table_version"] == 7)
    assert "endpoints.vision/digits.deployments.blue.instances[0].socket" in router.log()
    assert router.request().status == 200


def test_a_table_is_read_as_it_was_written(router: RouterProcess) -> None:
    router.write({"blue": DeploymentRow(max_queue=7, can_wake=True)}, mirror={})
    table = parse(_table(router))
    assert parse(to_text(table)) == table
    with pytest.raises(BrokenTable, match="version: not a whole number"):
        parse(b'{"version": true, "endpoints": {}}')


def test_a_killed_router_comes_back_at_its_port_with_its_table(router: RouterProcess) -> None:
    server = router.model("blue-1")
    router.write({"blue": DeploymentRow((server.row(),))})
    port = router.port
    router.kill()
    with pytest.raises(RouterAway):
        ask(router.folder, {"ask": "hello"})
    router.start()
    assert router.port == port
    assert router.request().status == 200


def test_a_router_whose_home_is_deleted_ends(router: RouterProcess) -> None:
    shutil.rmtree(router.home)
    assert router.wait() == 0


def test_only_one_router_runs_in_a_home(router: RouterProcess) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "torchyard.endpoints.router", "--home", router.home],
        capture_output=True,
        text=True,
    )
    assert second.returncode == 2
    assert second.stderr.startswith("error: a router of ") and "\nhint: " in second.stderr
    hello = router.ask("hello")
    assert hello["version"] == torchyard.__version__


def test_a_taken_port_and_a_missing_certificate_are_named(
    router: RouterProcess, tmp_path: Path
) -> None:
    for options, message in (
        (["--port", str(router.port)], "can't listen at"),
        (["--certificate", str(tmp_path / "none.pem")], "can't be read"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "torchyard.endpoints.router", "--home", tmp_path, *options],
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 2 and message in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_router_takes_over_from_another_without_a_refused_connection(
    router: RouterProcess,
) -> None:
    server = router.model("blue-1")
    router.write({"blue": DeploymentRow((server.row(),), max_concurrent=8)})
    statuses: list[int] = []
    is_over = threading.Event()

    def ask_on() -> None:
        while not is_over.is_set():
            statuses.append(router.request().status)

    threads = [threading.Thread(target=ask_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    port = router.port
    for _ in range(3):
        router.replace()
        assert router.port == port
        count = len(statuses)
        wait_until(lambda n=count: len(statuses) > n + 50)  # type: ignore[misc]
    is_over.set()
    for thread in threads:
        thread.join()
    assert set(statuses) == {200}


def test_no_program_inherits_the_listener_that_is_taken_over(router: RouterProcess) -> None:
    taken = take_over(router.folder)
    assert taken is not None
    with taken:
        assert taken.getsockname()[1] == router.port
        assert not taken.get_inheritable()
    assert router.wait() == 0


@pytest.mark.parametrize("by_signal", [True, False])
def test_a_stop_lets_requests_at_work_end(router: RouterProcess, by_signal: bool) -> None:
    server = router.model("blue-1")
    router.write({"blue": DeploymentRow((server.row(),))})
    idle = router.connection()
    assert send(idle).status == 200
    answers: list[tuple[int, str]] = []

    def slow() -> None:
        answer = router.request("/score?s=1")
        answers.append((answer.status, answer.headers["connection"]))

    thread = threading.Thread(target=slow)
    thread.start()
    wait_until(lambda: router.statistics("blue")["in_flight"] == {"blue-1": 1})
    if by_signal:
        router.terminate()
    else:
        assert router.ask("stop", grace_s=20) == {"stopping": True}
    assert router.wait() == 0
    thread.join()
    idle.close()
    assert answers == [(200, "close")]
    assert not (router.folder / "control.sock").exists()
    assert "Traceback" not in router.log()


def test_the_router_loads_nothing_of_the_server() -> None:
    code = (
        "import sys, torchyard.endpoints.router.program, torchyard.endpoints.router.__main__\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}"
        " & {'fastapi', 'sqlalchemy', 'uvicorn', 'pydantic', 'yaml', 'click'}))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout == "[]\n", output.stderr


def _table(router: RouterProcess) -> bytes:
    return (router.folder / "table.json").read_bytes()
