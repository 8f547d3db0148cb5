"""The verbs of data, datastores, models, workspaces; `--query`; tables; against the real server."""

from __future__ import annotations

import json
import os
import pty
import select
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest
import yaml

from cli.conftest import Yard
from cli.relay import Relay
from cli.served_workspace import ServedWorkspace
from torchyard.data import datastores
from torchyard.data.types import Datastore


@pytest.fixture
def jobs(server: ServedWorkspace) -> ServedWorkspace:
    for number in range(3):
        server.completed(f"job-{number}", tags={"a": "b"}, experiment_name="digits")
    return server


def test_data(server: ServedWorkspace, yard: Yard) -> None:
    Path("digits").mkdir()
    Path("digits/a.csv").write_text("1,2")
    Path("d.yml").write_text("name: digits\ntype: uri_folder\npath: digits\n")
    assert yard("data", "create", "-f", "d.yml", "--tags", "a=b", "c=d", "-v", "7").code == 0
    made = json.loads(yard("data", "show", "digits", "-v", "7", "-o", "json").out)
    assert made["tags"] == {"a": "b", "c": "d"} and made["version"] == "7"
    assert yard("data", "create", "-n", "far", "-p", "https://e.org/x", "-t", "uri_file").code == 0
    assert yard("data", "show", "far:1", "--query", "path").text == '"https://e.org/x"\n'
    names = yard("data", "list", "--query", "[].name", "-o", "tsv").text.split()
    assert names == ["digits", "far"]
    assert yard("data", "archive", "-n", "digits").err == "Data asset `digits` is archived.\n"
    assert len(json.loads(yard("data", "list", "-o", "json").out)) == 1
    assert len(json.loads(yard("data", "list", "--include-archived", "-o", "json").out)) == 2
    only = json.loads(yard("data", "list", "--archived-only", "-o", "json").out)
    assert [row["name"] for row in only] == ["digits"]
    assert yard("data", "restore", "digits:7").code == 0
    assert len(json.loads(yard("data", "list", "-o", "json").out)) == 2
    assert json.loads(yard("data", "show", "digits@latest", "-o", "json").out)["version"] == "7"
    assert yard("data", "download", "azureml:digits:7", "-p", "to").code == 0
    assert [path.name for path in Path("to").rglob("*") if path.is_file()] == ["a.csv"]


def test_datastores(server: ServedWorkspace, yard: Yard) -> None:
    for folder in ("stores/here", "x"):
        Path(folder).mkdir(parents=True)
    Path("stores/s3.yml").write_text(
        "name: lake\ntype: s3\nurl: s3://bucket\ncredentials: {secret_access_key: hush}\n"
    )
    answer = yard("datastore", "create", "-f", "stores/s3.yml")
    assert answer.code == 0 and "hush" not in answer.text
    assert "hush" in str(_datastore(server, "lake").options)
    Path("stores/local.yml").write_text("name: nas\ntype: local\npath: ./here\n")
    assert yard("datastore", "create", "-f", "stores/local.yml").code == 0
    assert _datastore(server, "nas").document["path"] == str(Path("stores/here").absolute())
    assert yard("datastore", "create", "-n", "b", "--type", "local", "--path", "x").code == 0
    assert _datastore(server, "b").document["path"] == str(Path("x").absolute())
    assert {"lake", "nas", "b"} < _datastore_names(yard)
    assert yard("datastore", "delete", "lake").code == 2 and "lake" in _datastore_names(yard)
    assert yard("datastore", "delete", "-n", "lake", "--yes").code == 0
    assert "lake" not in _datastore_names(yard) > {"nas", "b"}


def _datastore(server: ServedWorkspace, name: str) -> Datastore:
    """As the server has it, with secrets."""
    services = server.services
    return datastores.get(services.db, services.datastores, server.name, name)


def _datastore_names(yard: Yard) -> set[str]:
    return set(json.loads(yard("datastore", "list", "--query", "[].name").out))


def test_workspaces_and_url_maps(server: ServedWorkspace, yard: Yard) -> None:
    vision, speech = f"vision-{server.name}", f"speech-{server.name}"
    answer = yard("workspace", "create", "-n", vision, "-g", "team", "-l", "here", "-o", "json")
    made = json.loads(answer.out)
    assert (made["name"], made["resource_group"], made["location"]) == (vision, "team", "here")
    create = ("workspace", "create", "-n", speech, "--tags", "a=b", "--hbi-workspace")
    refused = yard(*create, "--managed-network", "allow_internet_outbound")
    assert refused.code == 2 and "`isolation_mode: allow_internet_outbound` can't" in refused.err
    made = json.loads(yard(*create, "--managed-network", "disabled", "-o", "json").out)
    assert (made["name"], made["tags"]) == (speech, {"a": "b"})
    target = "azureml://datastores/workspaceblobstore/paths/mnist"
    assert yard("workspace", "map-url", "https://e.org/mnist", target).code == 0
    assert yard("workspace", "map-url", "-o", "tsv").text == f"https://e.org/mnist\t{target}\n"
    assert yard("workspace", "unmap-url", "https://e.org/mnist").code == 0
    assert yard("workspace", "map-url", "-o", "tsv").text == ""


@pytest.mark.parametrize(
    "config_path", [".azureml/config.json", "aml_config/config.json", "config.json"]
)
def test_config_json_is_found(
    server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch, config_path: str
) -> None:
    monkeypatch.delenv("TORCHYARD_WORKSPACE")
    Path(config_path).parent.mkdir(exist_ok=True)
    names = {"workspace_name": server.name, "subscription_id": "x"}
    Path(config_path).write_text(json.dumps(names))
    assert json.loads(yard("workspace", "show", "-o", "json").out)["name"] == server.name
    # The first of the three wins.
    Path(".azureml").mkdir(exist_ok=True)
    Path(".azureml/config.json").write_text(json.dumps({"workspace_name": "default"}))
    assert json.loads(yard("workspace", "show", "-o", "json").out)["name"] == "default"


def test_models_are_updated_and_environments_shown(server: ServedWorkspace, yard: Yard) -> None:
    Path("m.pt").write_bytes(b"weights")
    assert yard("model", "create", "-n", "m", "-v", "3", "-p", "m.pt").code == 0
    answer = yard("model", "update", "-n", "m", "-v", "3", "--set", "tags.stage=live", "-o", "json")
    assert json.loads(answer.out)["tags"] == {"stage": "live"}
    assert yard("environment", "show", "python", "--query", "version").text == '"1"\n'
    assert yard("environment", "show", "python:1", "-o", "tsv").text.startswith("python\t1")
    answer = yard("environment", "show", "python", "-v", "9")
    assert answer.code == 2 and "it has 1" in answer.err


def test_job_verbs(jobs: ServedWorkspace, yard: Yard) -> None:
    answer = yard("job", "update", "job-1", "--set", "tags.kept=true", "display_name=best so far")
    assert answer.code == 0
    job = jobs.job("job-1")
    assert job.tags == {"a": "b", "kept": "true"} and job.display_name == "best so far"
    assert yard("job", "archive", "job-1").code == 0
    listed = yard("job", "list", "--query", "[].name", "-o", "tsv").text.split()
    assert listed == ["job-2", "job-0"]
    assert yard("job", "list", "--archived-only", "-o", "tsv").text.startswith("job-1\t")
    assert yard("job", "list", "--include-archived", "--query", "length(@)").text == "3\n"
    assert yard("job", "restore", "job-1").code == 0
    assert yard("job", "list", "--all-results", "true", "--query", "length(@)").text == "3\n"
    experiment = yard("experiment", "list").text.splitlines()[-1].split()
    assert experiment[:3] == ["digits", "3", "2026-01-01"]


def test_code_is_restored(server: ServedWorkspace, yard: Yard) -> None:
    Path("src/pkg").mkdir(parents=True)
    Path("src/pkg/run.sh").write_text("echo 1")
    Path("src/pkg/run.sh").chmod(0o755)
    Path("src/a.py").write_text("print(1)")
    Path("job.yml").write_text("command: x\nenvironment: python\ncode: src\nname: mine\n")
    assert yard("job", "create", "job.yml").code == 0
    shown = yard("job", "show", "mine", "--code").text
    assert "a.py" in shown and "pkg/run.sh" in shown
    assert yard("job", "code", "mine", "-p", "back").code == 0
    assert Path("back/pkg/run.sh").read_text() == "echo 1"
    assert Path("back/pkg/run.sh").stat().st_mode & 0o777 == 0o755
    Path("back/a.py").write_text("changed")
    Path("back/pkg/run.sh").unlink()
    answer = yard("job", "code", "mine", "-p", "back")
    assert answer.code == 2 and "`back/a.py` is there already" in answer.err
    assert not Path("back/pkg/run.sh").exists() and Path("back/a.py").read_text() == "changed"
    assert yard("job", "code", "mine", "-p", "back", "--overwrite").code == 0
    assert Path("back/a.py").read_text() == "print(1)" and Path("back/pkg/run.sh").exists()


def test_clone(server: ServedWorkspace, yard: Yard) -> None:
    Path("src").mkdir()
    Path("src/a.py").write_text("print(1)")
    Path("job.yml").write_text(
        "command: x\nenvironment: python\ncode: src\nname: mine\ninputs: {lr: 0.1, n: 2}\n"
        "display_name: first\n"
    )
    assert yard("job", "create", "job.yml").code == 0
    Path("src/a.py").write_text("print(2)")
    answer = yard("job", "clone", "mine", "--set", "inputs.lr=0.5", "tags.x=1", "-o", "json")
    assert answer.code == 0, answer.err
    assert server.document(json.loads(answer.out)["name"]) == {
        **server.document("mine"),
        "properties": {"torchyard.cloned_from": "mine"},
        "inputs": {"lr": 0.5, "n": 2},
        "tags": {"x": "1"},
    }
    assert yard("job", "clone", "mine", "--new-name", "again", "-o", "none").code == 0
    assert server.document("again")["code"] == server.document("mine")["code"]


def test_validate_many(jobs: ServedWorkspace, yard: Yard) -> None:
    Path("good.yml").write_text("command: x\nenvironment: python\n")
    Path("bad.yml").write_text("comand: x\nenvironment: python\n")
    answer = yard("job", "validate", "good.yml", "-f", "bad.yml", "-o", "json")
    assert answer.code == 2 and answer.err.startswith("error: bad.yml:1:1: unknown key")
    assert [row["valid"] for row in json.loads(answer.out)] == [False, True]
    assert yard("job", "validate", "good.yml").code == 0
    assert yard("job", "list", "--query", "length(@)").text == "3\n"


def test_query(server: ServedWorkspace, yard: Yard) -> None:
    server.completed("job-1", tags={"a": "b"})
    cases: tuple[tuple[str, list[str], str], ...] = (
        ("status", [], '"Completed"\n'),
        ("status", ["-o", "tsv"], "Completed\n"),
        ("status", ["-o", "yaml"], "Completed\n"),
        ("nope", [], "null\n"),
        ("nope", ["-o", "tsv"], "\n"),
        ("tags", ["-o", "tsv"], "b\n"),
        ("{Name:name, Tag:tags.a}", ["-o", "table"], "NAME   TAG\n-----  ---\njob-1  b\n"),
        ("[name, status]", ["-o", "tsv"], "job-1\nCompleted\n"),
        ("[[name, status]]", ["-o", "tsv"], "job-1\tCompleted\n"),
        ("status", ["-o", "none"], ""),
    )
    for query, form, printed in cases:
        assert yard("job", "show", "job-1", "--query", query, *form).text == printed, query


def test_options_that_az_has(server: ServedWorkspace, yard: Yard) -> None:
    Path("job.yml").write_text("command: x\nenvironment: python\n")
    answer = yard("job", "create", "--file", "job.yml", "--skip-validation", "-o", "none")
    assert answer.code == 0 and answer.err.count("` is ignored") == 1
    saved = yard("job", "create", "-f", "job.yml", "--save-as", "made.json", "--only-show-errors")
    assert saved.code == 0 and json.loads(Path("made.json").read_text())["name"]
    named = ("job", "create", "-f", "job.yml", "-n", "mine", "-o", "none")
    assert yard(*named, "--set", "tags.a=1", "tags.b=2").code == 0
    assert server.job("mine").tags == {"a": "1", "b": "2"}
    assert yaml.safe_load(yard("job", "show", "mine", "-o", "yaml").out)["name"] == "mine"


def at_terminal(columns: int, *arguments: str, **variables: str) -> str:
    """What `yard` prints at a terminal that wide."""
    leader, follower = pty.openpty()
    ioctl(follower, TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-m", "torchyard.cli.main", *arguments],
        stdin=follower, stdout=follower, stderr=follower,
        env={**environ, "TERM": "xterm", **variables},
    ) as process:  # fmt: skip
        os.close(follower)
        answer = b""
        while select.select([leader], [], [], 20)[0]:
            try:
                chunk = os.read(leader, 1 << 16)
            except OSError:
                break
            if not chunk:
                break
            answer += chunk
        assert process.wait(60) == 0, answer
    os.close(leader)
    return answer.decode().replace("\r\n", "\n")


def test_tables_fit_the_terminal(server: ServedWorkspace, yard: Yard) -> None:
    name = "a-name-of-a-job-that-others-paste"
    server.start(name, display_name="日本語 " * 20, experiment_name="e" * 90)
    answer = at_terminal(100, "job", "list", NO_COLOR="1")
    assert "\x1b" not in answer and name in answer and "…" in answer
    lines = answer.splitlines()
    assert all(len(line) <= 100 for line in lines), lines
    assert "\x1b[1m" in at_terminal(100, "job", "list")
    assert len(at_terminal(60, "job", "list", NO_COLOR="1").splitlines()[1]) <= 60


def test_a_bar_at_a_terminal_only(
    server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.yml").write_text("command: x\nenvironment: python\ncode: src\n")
    Path("src/big").parent.mkdir()
    Path("src/big").write_bytes(os.urandom(12 << 20))
    assert "Uploading" not in yard("job", "create", "job.yml").err
    Path("src/big").write_bytes(os.urandom(12 << 20))
    relay = Relay(server.url, pause_s=0.004)
    monkeypatch.setenv("TORCHYARD_URL", relay.url)
    answer = at_terminal(100, "job", "create", "job.yml", "-o", "none")
    relay.stop()
    assert "Uploading" in answer and "MB/s" in answer
