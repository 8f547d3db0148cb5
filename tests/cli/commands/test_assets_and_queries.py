"""The verbs of data, datastores, models, workspaces; `--query`; tables; against a fake server."""

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
from cli.fake_server import CREATED_AT, FakeJob, FakeServer, job_body


@pytest.fixture
def jobs(server: FakeServer) -> FakeServer:
    for number in range(3):
        name = f"job-{number}"
        server.state.jobs[name] = FakeJob(job_body(name, tags={"a": "b"}))
    return server


def test_data(server: FakeServer, yard: Yard) -> None:
    Path("digits").mkdir()
    Path("digits/a.csv").write_text("1,2")
    Path("d.yml").write_text("name: digits\ntype: uri_folder\npath: digits\n")
    assert yard("data", "create", "-f", "d.yml", "--tags", "a=b", "c=d", "-v", "7").code == 0
    (posted,) = server.state.data
    assert posted["tags"] == {"a": "b", "c": "d"} and posted["version"] == "7"
    manifest = server.state.manifests[posted["path"].removeprefix("snapshot:")]
    assert [file["path"] for file in manifest["files"]] == ["a.csv"]
    assert yard("data", "create", "-n", "far", "-p", "https://e.org/x", "-t", "uri_file").code == 0
    assert server.state.data[1]["path"] == "https://e.org/x"
    names = yard("data", "list", "--query", "[].name", "-o", "tsv").text.split()
    assert names == ["digits", "far"]
    assert yard("data", "archive", "-n", "digits").err == "Data asset `digits` is archived.\n"
    assert len(json.loads(yard("data", "list", "-o", "json").out)) == 1
    assert len(json.loads(yard("data", "list", "--include-archived", "-o", "json").out)) == 2
    only = json.loads(yard("data", "list", "--archived-only", "-o", "json").out)
    assert [row["name"] for row in only] == ["digits"]
    assert yard("data", "restore", "digits:7").code == 0
    assert len(json.loads(yard("data", "list", "-o", "json").out)) == 2
    assert json.loads(yard("data", "show", "digits@latest", "-o", "json").out)["version"] == "1"
    assert yard("data", "download", "azureml:digits:7", "-p", "to").code == 0
    assert Path("to/digits/model.pt").read_bytes() == b"weights"


def test_datastores(server: FakeServer, yard: Yard) -> None:
    Path("stores").mkdir()
    Path("stores/s3.yml").write_text(
        "name: lake\ntype: s3\nurl: s3://bucket\ncredentials: {secret_access_key: hush}\n"
    )
    answer = yard("datastore", "create", "-f", "stores/s3.yml")
    assert answer.code == 0 and "hush" not in answer.text
    assert server.state.datastores["lake"]["credentials"] == {"secret_access_key": "hush"}
    Path("stores/local.yml").write_text("name: nas\ntype: local\npath: ./here\n")
    assert yard("datastore", "create", "-f", "stores/local.yml").code == 0
    assert server.state.datastores["nas"]["path"] == str(Path("stores/here").absolute())
    assert yard("datastore", "create", "-n", "b", "--type", "local", "--path", "x").code == 0
    assert server.state.datastores["b"]["path"] == str(Path("x").absolute())
    assert yard("datastore", "list", "--query", "length(@)").text == "3\n"
    assert yard("datastore", "delete", "lake").code == 2 and "lake" in server.state.datastores
    assert yard("datastore", "delete", "-n", "lake", "--yes").code == 0
    assert list(server.state.datastores) == ["nas", "b"]


def test_workspaces_and_url_maps(server: FakeServer, yard: Yard) -> None:
    answer = yard("workspace", "create", "-n", "vision", "-g", "team", "-l", "here", "-o", "json")
    assert json.loads(answer.out)["name"] == "vision"
    assert server.state.workspaces == [
        {"name": "vision", "resource_group": "team", "location": "here"}
    ]
    network = ("--managed-network", "allow_internet_outbound", "--hbi-workspace")
    assert yard("workspace", "create", "-n", "speech", "--tags", "a=b", *network).code == 0
    assert server.state.workspaces[1] == {
        "name": "speech",
        "tags": {"a": "b"},
        "managed_network": "allow_internet_outbound",
        "hbi_workspace": True,
    }
    target = "azureml://datastores/nas/paths/mnist"
    assert yard("workspace", "map-url", "https://e.org/mnist", target).code == 0
    assert server.state.url_maps == {"https://e.org/mnist": target}
    assert yard("workspace", "map-url", "-o", "tsv").text == f"https://e.org/mnist\t{target}\n"
    assert yard("workspace", "unmap-url", "https://e.org/mnist").code == 0
    assert server.state.url_maps == {}


@pytest.mark.parametrize(
    "config_path", [".azureml/config.json", "aml_config/config.json", "config.json"]
)
def test_config_json_is_found(server: FakeServer, yard: Yard, config_path: str) -> None:
    Path(config_path).parent.mkdir(exist_ok=True)
    Path(config_path).write_text(json.dumps({"workspace_name": "vision", "subscription_id": "x"}))
    assert json.loads(yard("workspace", "show", "-o", "json").out)["name"] == "vision"
    # The first of the three wins.
    Path(".azureml").mkdir(exist_ok=True)
    Path(".azureml/config.json").write_text(json.dumps({"workspace_name": "speech"}))
    assert json.loads(yard("workspace", "show", "-o", "json").out)["name"] == "speech"


def test_models_are_updated_and_environments_shown(server: FakeServer, yard: Yard) -> None:
    answer = yard("model", "update", "-n", "m", "-v", "3", "--set", "tags.stage=live", "-o", "json")
    assert json.loads(answer.out)["tags"] == {"stage": "live"}
    assert yard("environment", "show", "python", "--query", "version").text == '"3.12"\n'
    assert yard("environment", "show", "python:3.11", "-o", "tsv").text.startswith("python\t3.11")
    answer = yard("environment", "show", "python", "-v", "9")
    assert answer.code == 2 and "it has 3.11, 3.12" in answer.err


def test_job_verbs(jobs: FakeServer, yard: Yard) -> None:
    answer = yard("job", "update", "job-1", "--set", "tags.kept=true", "display_name=best so far")
    assert answer.code == 0
    body = jobs.state.jobs["job-1"].body
    assert body["tags"] == {"a": "b", "kept": "true"} and body["display_name"] == "best so far"
    assert yard("job", "archive", "job-1").code == 0
    listed = yard("job", "list", "--query", "[].name", "-o", "tsv").text.split()
    assert listed == ["job-2", "job-0"]
    assert yard("job", "list", "--archived-only", "-o", "tsv").text.startswith("job-1\t")
    assert yard("job", "list", "--include-archived", "--query", "length(@)").text == "3\n"
    assert yard("job", "restore", "job-1").code == 0
    assert yard("job", "list", "--all-results", "true", "--query", "length(@)").text == "3\n"
    listed_name, day, _ = yard("experiment", "list").text.splitlines()[-1].split()
    assert (listed_name, day) == ("digits", CREATED_AT[:10])


def test_code_is_restored(jobs: FakeServer, yard: Yard) -> None:
    Path("src/pkg").mkdir(parents=True)
    Path("src/pkg/run.sh").write_text("echo 1")
    Path("src/pkg/run.sh").chmod(0o755)
    Path("src/a.py").write_text("print(1)")
    Path("job.yml").write_text("command: x\ncode: src\nname: mine\n")
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


def test_clone(jobs: FakeServer, yard: Yard) -> None:
    Path("src").mkdir()
    Path("src/a.py").write_text("print(1)")
    Path("job.yml").write_text(
        "command: x\ncode: src\nname: mine\ninputs: {lr: 0.1, n: 2}\ndisplay_name: first\n"
    )
    assert yard("job", "create", "job.yml").code == 0
    Path("src/a.py").write_text("print(2)")
    answer = yard("job", "clone", "mine", "--set", "inputs.lr=0.5", "tags.x=1")
    assert answer.code == 0, answer.err
    first, second = jobs.state.posted
    assert second == {
        **{key: value for key, value in first.items() if key != "name"},
        "display_name": "mine-display",
        "properties": {"torchyard.cloned_from": "mine"},
        "inputs": {"lr": 0.5, "n": 2},
        "tags": {"x": "1"},
    }
    assert yard("job", "clone", "mine", "--new-name", "again", "-o", "none").code == 0
    assert jobs.state.posted[-1]["name"] == "again"


def test_validate_many(jobs: FakeServer, yard: Yard) -> None:
    Path("good.yml").write_text("command: x\n")
    Path("bad.yml").write_text("comand: x\n")
    answer = yard("job", "validate", "good.yml", "-f", "bad.yml", "-o", "json")
    assert answer.code == 2 and answer.err.startswith("error: bad.yml:1:1: unknown key")
    assert [row["valid"] for row in json.loads(answer.out)] == [False, True]
    assert yard("job", "validate", "good.yml").code == 0
    assert not jobs.state.posted


@pytest.mark.parametrize(
    ("query", "form", "printed"),
    [
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
    ],
)
def test_query(jobs: FakeServer, yard: Yard, query: str, form: list[str], printed: str) -> None:
    assert yard("job", "show", "job-1", "--query", query, *form).text == printed


def test_options_that_az_has(jobs: FakeServer, yard: Yard) -> None:
    Path("job.yml").write_text("command: x\n")
    answer = yard("job", "create", "--file", "job.yml", "--skip-validation", "-o", "none")
    assert answer.code == 0 and answer.err.count("` is ignored") == 1
    saved = yard("job", "create", "-f", "job.yml", "--save-as", "made.json", "--only-show-errors")
    assert saved.code == 0 and json.loads(Path("made.json").read_text())["name"]
    answer = yard("job", "create", "-f", "job.yml", "--set", "tags.a=1", "tags.b=2", "-o", "none")
    assert answer.code == 0 and jobs.state.posted[-1]["tags"] == {"a": "1", "b": "2"}
    assert yaml.safe_load(yard("job", "show", "job-1", "-o", "yaml").out)["name"] == "job-1"


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


def test_tables_fit_the_terminal(server: FakeServer, yard: Yard) -> None:
    name = "a-name-of-a-job-that-others-paste"
    body = job_body(name, display_name="日本語 " * 20, experiment_name="e" * 90)
    server.state.jobs[name] = FakeJob(body)
    answer = at_terminal(100, "job", "list", NO_COLOR="1")
    assert "\x1b" not in answer and name in answer and "…" in answer
    lines = answer.splitlines()
    assert all(len(line) <= 100 for line in lines), lines
    assert "\x1b[1m" in at_terminal(100, "job", "list")
    assert len(at_terminal(60, "job", "list", NO_COLOR="1").splitlines()[1]) <= 60


def test_a_bar_at_a_terminal_only(server: FakeServer, yard: Yard) -> None:
    Path("src").mkdir()
    for number in range(4):
        Path(f"src/{number}").write_bytes(os.urandom(3 << 20))
    Path("job.yml").write_text("command: x\ncode: src\n")
    assert "Uploading" not in yard("job", "create", "job.yml").err
    server.state.blobs.clear()
    server.state.manifests.clear()
    server.state.slow_s = 0.15
    answer = at_terminal(100, "job", "create", "job.yml", "-o", "none")
    assert "Uploading" in answer and "MB/s" in answer
