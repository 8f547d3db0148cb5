"""`yard online-endpoint`, `online-deployment` and `model deploy` against the real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Yard
from cli.real_server import RealServer
from end_to_end.yard_under_test import wait_until
from torchyard.base.errors import InvalidInput, NotAuthenticated
from torchyard.client.endpoints import scoring

SCORE = "def init():\n    pass\n\n\ndef run(data):\n    return data\n"
BLUE = """\
$schema: https://azuremlschemas.azureedge.net/latest/managedOnlineDeployment.schema.json
name: blue
endpoint_name: digits
model:
  path: ../model-1/model/
code_configuration:
  code: ../model-1/onlinescoring/
  scoring_script: score.py
environment:
  conda_file: ../model-1/environment/conda.yaml
  image: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04:latest
instance_type: Standard_DS3_v2
instance_count: 1
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealServer]:
    made = RealServer(tmp_path / "server")
    monkeypatch.setenv("TORCHYARD_URL", made.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", made.token)
    yield made
    made.stop()


REFUSALS: dict[str, tuple[int, Any]] = {
    "Bearer nowhere": (404, {"error": {"message": "no such deployment"}}),
    "Bearer long": (413, {"error": {"message": "The body is too long."}}),
    "Bearer raised": (424, {"message": "The script raised."}),
    "Bearer list": (424, ["odd"]),
}


class Scored(BaseHTTPRequestHandler):
    """Answers what it was sent, or as an endpoint does to a wrong key or request."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_good = self.headers["Authorization"] == "Bearer good"
        echo = {
            "path": self.path,
            "deployment": self.headers.get("azureml-model-deployment", ""),
            "body": json.loads(body),
        }
        refusal = {"error": {"code": "Unauthorized", "message": "The key is wrong."}}
        status, content = REFUSALS.get(
            self.headers["Authorization"], (200, echo) if is_good else (401, refusal)
        )
        answer = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: Any) -> None:
        return


@pytest.fixture
def listening() -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Scored)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def blue(server: RealServer, yard: Yard) -> Path:
    """The folders of Azure's sample, and an endpoint."""
    for name, text in (
        ("model-1/model/sklearn_regression_model.pkl", "weights"),
        ("model-1/onlinescoring/score.py", SCORE),
        ("model-1/environment/conda.yaml", "dependencies: [python=3.11, pip, {pip: [six]}]\n"),
        ("sample/blue.yml", BLUE),
    ):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    assert yard("online-endpoint", "create", "-n", "digits").code == 0
    return Path("sample/blue.yml")


def json_of(yard: Yard, *arguments: str) -> Any:
    answer = yard(*arguments, "-o", "json")
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def test_an_endpoint_from_its_file_to_its_end(server: RealServer, yard: Yard) -> None:
    Path("endpoint.yml").write_text("name: digits\nauth_mode: key\ntags: {a: b}\n")
    made = json_of(yard, "online-endpoint", "create", "-f", "endpoint.yml")
    assert made["tags"] == {"a": "b"} and made["provisioning_state"] == "Succeeded"
    json_of(yard, "online-endpoint", "update", "-n", "digits", "--set", "tags.c=d")
    assert json_of(yard, "online-endpoint", "show", "-n", "digits")["tags"] == {"a": "b", "c": "d"}
    assert "digits" in yard("online-endpoint", "list").text
    keys = json_of(yard, "online-endpoint", "get-credentials", "-n", "digits")
    done = yard("online-endpoint", "regenerate-keys", "-n", "digits", "--key-type", "secondary")
    assert done.code == 0 and keys["secondaryKey"] not in done.text
    after = json_of(yard, "online-endpoint", "get-credentials", "-n", "digits")
    assert after["primaryKey"] == keys["primaryKey"]
    assert after["secondaryKey"] != keys["secondaryKey"]
    assert yard("online-endpoint", "delete", "-n", "digits", "--yes").code == 0
    assert yard("online-endpoint", "show", "-n", "digits").code == 2


def test_azures_sample_is_taken_as_it_is(server: RealServer, yard: Yard, blue: Path) -> None:
    answer = yard("online-deployment", "create", "-f", blue, "--no-wait", "-o", "json")
    assert answer.code == 0, answer.err
    made = json.loads(answer.out)
    assert made["revision"] == 1 and made["model"]["folder"] == "model"
    assert made["code_configuration"]["code"].startswith("snapshot:")
    command = ("online-deployment", "update", "-n", "blue", "-e", "digits", "--no-wait")
    assert json_of(yard, *command, "--set", "instance_count=2")["instance_count"] == 2
    assert "blue" in yard("online-deployment", "list", "-e", "digits").text
    traffic = ("online-endpoint", "update", "-n", "digits", "--traffic", "blue=100")
    assert json_of(yard, *traffic)["traffic"] == {"blue": 100}
    refused = yard("online-deployment", "delete", "-n", "blue", "-e", "digits", "--yes")
    assert refused.code == 2 and "100% of the traffic" in refused.err
    assert yard("online-deployment", "get-logs", "-n", "blue", "-e", "digits").code == 0


def test_an_update_by_file_is_the_whole_deployment(
    server: RealServer, yard: Yard, blue: Path
) -> None:
    written = BLUE + "environment_variables: {LEVEL: debug, WORKER_COUNT: '2'}\n"
    blue.write_text(written)
    command = ("online-deployment", "update", "-f", str(blue), "--no-wait")
    refused = yard(*command)
    assert refused.code == 2 and "no deployment `blue`" in refused.err
    assert yard("online-deployment", "create", "-f", blue, "--no-wait").code == 0
    one_key = json_of(yard, *command[:2], "-n", "blue", "-e", "digits", "--no-wait",
                      "--set", "environment_variables.LEVEL=info")  # fmt: skip
    assert one_key["environment_variables"] == {"LEVEL": "info", "WORKER_COUNT": "2"}
    blue.write_text(written.replace("LEVEL: debug, ", ""))
    by_file = json_of(yard, *command, "--set", "instance_count=2")
    assert by_file["environment_variables"] == {"WORKER_COUNT": "2"}
    assert by_file["instance_count"] == 2
    blue.write_text(BLUE.replace("score.py", "main.py"))
    wrong = yard(*command)
    assert wrong.code == 2 and "no file `main.py`" in wrong.err
    assert wrong.err.count("blue.yml:8:3") == 1, wrong.err


@pytest.mark.parametrize(
    ("before", "after", "position", "text"),
    [
        ("../model-1/model/", "../absent", "blue.yml:5:3", "does not exist"),
        ("../model-1/onlinescoring/", "../absent", "blue.yml:7:3", "does not exist"),
        ("score.py", "main.py", "blue.yml:8:3", "no file `main.py`"),
        ("instance_count: 1", "instance_count: 0", "blue.yml:13:1", "instance_count"),
        ("name: blue", "name: b--e", "blue.yml:2:1", "`b--e` is not a valid `name`"),
        ("instance_type", "instance_typo", "blue.yml:12:1", "unknown key `instance_typo`"),
        # What is refused by name comes before paths.
        (
            "  path: ../model-1/model/",
            "  path: absent\n  type: triton_model",
            "blue.yml:6:3",
            "`type: triton_model` is not served",
        ),
        ("endpoint_name: digits", "endpoint_name: {{NAME}}", "blue.yml:3:17", "a placeholder"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    server: RealServer, yard: Yard, blue: Path,
    before: str, after: str, position: str, text: str,
) -> None:  # fmt: skip
    assert before in BLUE
    blue.write_text(BLUE.replace(before, after))
    answer = yard("online-deployment", "create", "-f", blue)
    assert answer.code == 2 and text in answer.err and position in answer.err, answer.err
    assert "hint:" in answer.err
    assert json_of(yard, "online-deployment", "list", "-e", "digits") == []


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("online-endpoint", "create", "-n", "a"), "not a valid `name`"),
        (("online-endpoint", "create", "-n", "abc", "--local"), "`--local` is not served"),
        (("online-endpoint", "create"), "needs a name"),
        (("online-endpoint", "update", "-n", "digits", "--traffic", "blue"), "is not a share"),
        (("online-endpoint", "update", "-n", "digits", "--traffic", "x=100"), "no deployment `x`"),
        (("online-endpoint", "update", "-n", "digits"), "no changes"),
        (("online-endpoint", "invoke", "-n", "digits", "-r", "absent"), "can't be read"),
        (("online-deployment", "create", "-n", "blue"), "needs `endpoint_name`"),
        (("online-deployment", "show", "-n", "blue", "-e", "digits"), "no deployment `blue`"),
        (("online-deployment", "list", "-e", "digit"), "`digit` does not exist"),
        (("model", "deploy", "-n", "absent"), "absent"),
    ],
)
def test_wrong_commands_are_refused(
    server: RealServer,
    yard: Yard,
    blue: Path,
    command: tuple[str, ...],
    text: str,
) -> None:
    answer = yard(*command)
    assert answer.code == 2 and text in answer.err and "hint:" in answer.err, answer.err


def test_a_request_has_the_key_and_the_deployment(listening: str) -> None:
    uri = f"{listening}/endpoints/default/digits/score"
    answer = scoring.score(uri, "good", b'{"data": [1, 2]}', "blue")
    assert json.loads(answer.body) == {
        "path": "/endpoints/default/digits/score",
        "deployment": "blue",
        "body": {"data": [1, 2]},
    }
    with pytest.raises(NotAuthenticated, match=r"The key is wrong\."):
        scoring.score(uri, "bad", b"{}")


@pytest.mark.parametrize(
    ("credential", "message", "hint"),
    [
        ("nowhere", "404: no such deployment", "`yard online-deployment list -e digits`"),
        ("long", "413: The body is too long.", "`torchyard: {max_body_mb: n}`"),
        ("raised", "424: The script raised.", "get-logs -n blue -e digits`"),
        ("list", '424: ["odd"]', "get-logs -n blue -e digits`"),
    ],
)
def test_what_an_endpoint_refuses_has_a_next_step(
    listening: str, credential: str, message: str, hint: str
) -> None:
    uri = f"{listening}/endpoints/default/digits/score"
    with pytest.raises(scoring.ScoringFailed) as caught:
        scoring.score(uri, credential, b"{}", "blue")
    assert caught.value.message == f"deployment `blue` answered {message}"
    assert hint in caught.value.hint


def test_invoke_reaches_the_router(server: RealServer, yard: Yard, blue: Path) -> None:
    Path("sample.json").write_text('{"data": [1, 2]}')

    def scoring_uri() -> Any:
        return json_of(yard, "online-endpoint", "show", "-n", "digits")["scoring_uri"]

    wait_until(lambda: bool(scoring_uri()), 60, "the router has started")
    answer = yard("online-endpoint", "invoke", "-n", "digits", "-r", "sample.json")
    assert answer.code == 1 and "answered 404" in answer.err, answer.err
    key = json_of(yard, "online-endpoint", "get-credentials", "-n", "digits")["primaryKey"]

    def is_refused() -> bool:
        try:
            scoring.score(scoring_uri(), f"{key}x", b"{}")
        except NotAuthenticated:
            return True
        except scoring.ScoringFailed:
            return False  # the router does not know the endpoint yet
        raise AssertionError("a wrong key was taken")

    wait_until(is_refused, 60, "the router knows the endpoint and its keys")
    with server.client() as client, pytest.raises(InvalidInput, match="can't be written as JSON"):
        client.online_endpoints.invoke("digits", {"data": {1, 2}})


def test_a_model_is_deployed_with_a_line_of_curl(server: RealServer, yard: Yard) -> None:
    Path("net.onnx").write_text("weights")
    assert yard("model", "create", "-n", "my_net", "-p", "net.onnx").code == 0
    command = ("model", "deploy", "-n", "my_net", "--no-wait")
    assert "the deployment has no `environment`" in yard(*command).err
    made = json_of(yard, *command, "--environment", "python")
    assert made["endpoint"] == "my-net" and made["model"] == "azureml:my_net:1"
    key = json_of(yard, "online-endpoint", "get-credentials", "-n", "my-net")["primaryKey"]
    assert made["curl"].startswith("curl ") and f"Bearer {key}" in made["curl"]
    uri = json_of(yard, "online-endpoint", "show", "-n", "my-net")["scoring_uri"]
    assert made["curl"].split()[-1] in (uri, "''")


def test_a_model_that_needs_a_script_says_so_with_the_option(
    server: RealServer, yard: Yard
) -> None:
    Path("net.pt").write_text("weights")
    assert yard("model", "create", "-n", "net", "-p", "net.pt").code == 0
    answer = yard("model", "deploy", "-n", "net", "--environment", "python", "--no-wait")
    assert answer.code == 2 and "`--code FOLDER`" in answer.err
    assert "`yard model export-onnx net --example FILE`" in answer.err
