"""Azure's inference server in the versions that environments bring, as an instance starts it.

Each is the real package in an environment of its own, with the pydantic, Flask and gunicorn that it
pins.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import client_venvs
import pytest

from eventually import eventually
from torchyard.endpoints.running import programs

pytestmark = [pytest.mark.azure, pytest.mark.timeout(600)]

_SUPERVISE = Path(programs.__file__).parent / "in_instance" / "supervise.py"
_SCORE = """
import json, os
from azureml.contrib.services.aml_response import AMLResponse

def init():
    # Once for each serving process, and nowhere else.
    with open(os.environ["INITS"], "a") as file:
        file.write(f"{os.getpid()}\\n")

def run(raw_data):
    values = json.loads(raw_data)["data"]
    if not values:
        return AMLResponse({"message": "no data"}, 422, json_str=True)
    return {"sum": sum(values), "pid": os.getpid()}
"""


class _Connection(http.client.HTTPConnection):
    """Over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(self._path))


@dataclass(frozen=True)
class Instance:
    """A started instance: its supervisor, its log, the file that init() writes to."""

    process: subprocess.Popen[bytes]
    path: Path
    log: Path
    inits: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any, Any]:
        """Status, headers and JSON of an answer."""
        with contextlib.closing(_Connection(self.path)) as connection:
            document = None if body is None else json.dumps(body)
            connection.request(method, path, document, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, answer.headers, json.loads(content) if is_json else content

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.text()
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask("GET", "/")[0] == 200
        return False


Start = Callable[..., Instance]


@pytest.fixture(params=client_venvs.SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not client_venvs.is_whole(name) and os.environ.get("TORCHYARD_TEST_SERVICES") != "required":
        pytest.skip(f"`make azure-clients` makes {name}")
    return name


@pytest.fixture
def start(server: str, tmp_path: Path) -> Iterator[Start]:
    """Start an instance with a scoring script, and more variables."""
    with contextlib.ExitStack() as stack:

        def started(script: str, **variables: str) -> Instance:
            code, path = tmp_path / "code", tmp_path / "socket"
            code.mkdir()
            (code / "score.py").write_text(script)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(str(path))
            listener.listen()
            listener.set_inheritable(True)
            inits, log = tmp_path / "inits", tmp_path / "log"
            environ = {"PATH": os.environ["PATH"], "INITS": str(inits), **variables}
            with log.open("wb") as opened:
                process = subprocess.Popen(
                    [
                        client_venvs.python(server),
                        _SUPERVISE,
                        "--root",
                        code,
                        "--entry",
                        "score.py",
                    ],
                    cwd=tmp_path,
                    env=environ,
                    stdout=opened,
                    stderr=subprocess.STDOUT,
                    pass_fds=[listener.fileno()],
                )
            stack.callback(_end, process)
            return Instance(process, path, log, inits)

        yield started


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def _version(server: str) -> str:
    lines = (client_venvs.LOCKS / f"{server}.txt").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("azureml-inference-server-http=="))
    return line.partition("==")[2]


def test_it_answers_and_is_followed_by_another_process(start: Start, server: str) -> None:
    instance = start(_SCORE)
    eventually(instance.is_ready, "the instance answers a probe")
    status, headers, answer = instance.ask("POST", "/score", {"data": [1, 2, 4]})
    assert (status, answer["sum"]) == (200, 7)
    assert headers["x-ms-server-version"] == f"azmlinfsrv/{_version(server)}"
    assert instance.ask("POST", "/score", {"data": []})[2] == {"message": "no data"}
    # One process answers, so that what it said of the first request is there, and there once.
    assert instance.text().count('"POST /score HTTP/1.1" 200') == 1, instance.text()
    # The successor imports the server, not the script.
    os.kill(answer["pid"], signal.SIGKILL)
    eventually(lambda: len(instance.inits.read_text().split()) > 1, "another process serves")
    following = instance.ask("POST", "/score", {"data": [1]})[2]
    assert following["sum"] == 1 and following["pid"] != answer["pid"]
    assert instance.inits.read_text().split() == [str(answer["pid"]), str(following["pid"])]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "import nothing_of_that_name\n",
            "`score.py`: importing it raised ModuleNotFoundError: No module named "
            "'nothing_of_that_name' (score.py, line 1, in <module>)",
        ),
        (
            "def init():\n    raise OSError('no weights')\n\ndef run(raw_data):\n    pass\n",
            "`score.py`: init() raised OSError: no weights (score.py, line 2, in init)",
        ),
        ("def init():\n    pass\n", "`score.py` does not define run()"),
    ],
)
def test_an_error_of_the_script_is_the_scripts(start: Start, script: str, message: str) -> None:
    instance = start(script)
    assert instance.process.wait(120) != 0
    assert instance.text().splitlines()[-1].endswith(f"ScoringFailed: {message}")


def test_a_setting_that_the_server_refuses_is_not_the_scripts_fault(
    start: Start, server: str
) -> None:
    if server == "inference-server-0.7":
        pytest.skip("it reads its settings leniently")
    instance = start(_SCORE, SCORING_TIMEOUT_MS="soon")
    assert instance.process.wait(120) != 0
    last = instance.text().splitlines()[-1]
    assert (
        f"azureml-inference-server-http {_version(server)} in the environment can't start" in last
    )
    assert "SCORING_TIMEOUT_MS" in last or "scoring_timeout" in last
    assert "score.py" not in last and not instance.inits.exists()
