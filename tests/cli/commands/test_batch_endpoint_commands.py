"""`yard batch-endpoint` and `batch-deployment` against the real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.real_server import RealServer

SCORE = "def init():\n    pass\n\n\ndef run(batch):\n    return batch\n"
BLUE = """\
$schema: https://azuremlschemas.azureedge.net/latest/modelBatchDeployment.schema.json
name: blue
endpoint_name: digits
type: model
model:
  path: model
code_configuration:
  code: code
  scoring_script: score.py
environment: python
settings:
  mini_batch_size: 5
  error_threshold: -1
"""


@pytest.fixture
def server(yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealServer]:
    made = RealServer(tmp_path / "server")
    monkeypatch.setenv("TORCHYARD_URL", made.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", made.token)
    for name, text in (("model/weights", "3"), ("code/score.py", SCORE), ("data/a.txt", "1")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "blue.yml").write_text(BLUE)
    monkeypatch.chdir(tmp_path)
    yield made
    made.stop()


def test_from_files_to_a_job_as_az_does(server: RealServer, yard: Yard) -> None:
    assert yard("batch-endpoint", "create", "-n", "digits", "-g", "x").code == 0
    made = yard("batch-deployment", "create", "-f", "blue.yml", "--set-default", "-o", "json")
    assert made.code == 0, made.err
    assert json.loads(made.text)["settings"]["mini_batch_size"] == 5
    shown = yard("batch-endpoint", "show", "-n", "digits", "--query", "defaults.deployment_name",
                 "-o", "tsv")  # fmt: skip
    assert shown.text.strip() == "blue"
    words: tuple[str, ...] = (
        "--input",
        "data",
        "--input-type",
        "uri_folder",
        "--mini-batch-size",
        "20",
    )
    words += ("--set", "output_file_name=x.csv", "--query", "name", "-o", "tsv")
    invoked = yard("batch-endpoint", "invoke", "--name", "digits", *words)
    assert invoked.code == 0, invoked.err
    name = invoked.text.strip()
    for words in (
        ("batch-endpoint", "list-jobs", "--name", "digits"),
        ("batch-deployment", "list-jobs", "--name", "blue", "--endpoint-name", "digits"),
    ):
        assert yard(*words, "--query", "[].name", "-o", "tsv").text.strip() == name
    assert "digits" in yard("batch-endpoint", "list").text
    assert "blue" in yard("batch-deployment", "list", "-e", "digits").text
    assert "aad_token" in yard("batch-endpoint", "show", "digits").text
    assert "mini_batch_size" in yard("batch-deployment", "show", "blue", "-e", "digits").text


def test_updates_and_deletions(server: RealServer, yard: Yard) -> None:
    yard("batch-endpoint", "create", "-n", "digits", "--tags", "a=b")
    assert yard("batch-deployment", "create", "-f", "blue.yml").code == 0
    assert yard("batch-deployment", "create", "-f", "blue.yml", "-n", "green").code == 0
    changed = yard("batch-endpoint", "update", "-n", "digits",
                   "--set", "defaults.deployment_name=green", "tags.c=d", "-o", "json")  # fmt: skip
    endpoint = json.loads(changed.text)
    assert endpoint["defaults"] == {"deployment_name": "green"}
    assert endpoint["tags"] == {"a": "b", "c": "d"}
    changed = yard("batch-deployment", "update", "-n", "blue", "-e", "digits",
                   "--set", "settings.mini_batch_size=9", "-o", "json")  # fmt: skip
    assert json.loads(changed.text)["settings"]["mini_batch_size"] == 9
    changed = yard("batch-deployment", "update", "-f", "blue.yml", "-o", "json")
    assert json.loads(changed.text)["settings"]["mini_batch_size"] == 5, changed.err
    refused = yard("batch-deployment", "delete", "-n", "green", "-e", "digits", "--yes")
    assert refused.code == 2 and "is the default" in refused.err
    for words in (
        ("batch-deployment", "delete", "-n", "blue", "-e", "digits"),
        ("batch-endpoint", "delete", "-n", "digits"),
    ):
        assert yard(*words, "--yes").code == 0
    assert yard("batch-endpoint", "show", "-n", "digits").code != 0


WRONG_FILES = [
    ("type: model", "type: pipeline", "blue.yml:4:1: `type: pipeline` is not served"),
    ("mini_batch_size: 5", "mini_batch_size: 5kb", "blue.yml:12:3: `mini_batch_size` must"),
    ("path: model", "path: models", "blue.yml:6:3: the path `models` does not exist"),
    ("score.py", "scores.py", "blue.yml:9:3: the code has no file `scores.py`"),
    ("error_threshold", "error_treshold", "blue.yml:13:3: unknown key `error_treshold`"),
    ("environment: python", "compute: nowhere\nenvironment: python", "blue.yml:10:1: "),
]
WRONG_INVOCATIONS = [
    ((), "a model is invoked with one input, not 0"),
    (("--input", "nowhere"), "--input: the path `nowhere` does not exist"),
    (("--input", "azureml:nothing:1"), "--input: "),
    (("--input", "data", "--input-type", "table"), "--input: `type` is"),
    (("--input", "data", "-m", "0"), "--mini-batch-size: `mini_batch_size` must be"),
    (("--input", "data", "--output-path", "x y"), "--output-path: "),
    (("--input", "data", "--set", "output=x"), "unknown key `output`"),
    (("--input", "data", "-d", "grey"), "has no deployment `grey`"),
]


def test_a_wrong_file_is_refused_at_its_place(
    server: RealServer, yard: Yard, tmp_path: Path
) -> None:
    yard("batch-endpoint", "create", "-n", "digits")
    for before, after, text in WRONG_FILES:
        (tmp_path / "blue.yml").write_text(BLUE.replace(before, after))
        refused = yard("batch-deployment", "create", "-f", "blue.yml")
        assert refused.code == 2
        assert f"error: {text}" in refused.err and "hint: " in refused.err


def test_a_wrong_invocation_is_refused(server: RealServer, yard: Yard) -> None:
    yard("batch-endpoint", "create", "-n", "digits")
    assert yard("batch-deployment", "create", "-f", "blue.yml").code == 0
    for words, text in WRONG_INVOCATIONS:
        refused = yard("batch-endpoint", "invoke", "-n", "digits", *words)
        assert refused.code == 2, refused.err
        assert text in refused.err and "hint: " in refused.err


def test_a_file_says_what_an_invocation_does(
    server: RealServer, yard: Yard, tmp_path: Path
) -> None:
    yard("batch-endpoint", "create", "-n", "digits")
    yard("batch-deployment", "create", "-f", "blue.yml")
    text = "inputs:\n  numbers:\n    type: uri_folder\n    path: data\n    mod: download\n"
    (tmp_path / "inputs.yml").write_text(text)
    refused = yard("batch-endpoint", "invoke", "-n", "digits", "-f", "inputs.yml")
    assert refused.code == 2 and "inputs.yml:5:5: unknown key `mod`" in refused.err
    (tmp_path / "inputs.yml").write_text(text.replace("mod:", "mode:"))
    invoked = yard("batch-endpoint", "invoke", "-n", "digits", "-f", "inputs.yml", "-o", "json")
    assert invoked.code == 0, invoked.err
    assert json.loads(invoked.text)["spec"]["inputs"]["data"]["mode"] == "download"
