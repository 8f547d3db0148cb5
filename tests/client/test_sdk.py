"""The Python SDK against the real server."""

from __future__ import annotations

import copy
import io
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from datetime import datetime, timezone
from pathlib import Path

import pytest

import torchyard
from cli.relay import Relay
from cli.served_workspace import ServedWorkspace
from eventually import eventually
from torchyard import Client, Input, Output, Stage, command
from torchyard.base import errors
from torchyard.base.errors import InvalidInput
from torchyard.base.settings import Settings
from torchyard.client.resources import Resource


@pytest.fixture
def client(
    server: ServedWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with server.client() as made:
        yield made


def test_the_package_is_light() -> None:
    script = "import sys, torchyard; print(sorted(m for m in sys.modules if 'torchyard' in m))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stdout == "['torchyard']\n"
    assert set(torchyard.__all__) >= {"Client", "command", "Input", "Output"}
    with pytest.raises(AttributeError, match="has no attribute 'Jop'"):
        torchyard.Jop  # type: ignore[attr-defined]  # noqa: B018


def test_every_public_name_is_there_and_offered() -> None:
    for name in torchyard.__all__:
        assert getattr(torchyard, name) is not None
    assert set(torchyard.__all__) <= set(dir(torchyard))
    assert set(torchyard.__all__) == {*torchyard._MODULES, "__version__"}


def test_every_error_of_the_tree_is_public() -> None:
    names = {
        name
        for name, kind in {**vars(errors), "JobFailed": torchyard.JobFailed}.items()
        if isinstance(kind, type) and issubclass(kind, errors.TorchyardError)
    }
    assert names == {word for word in re.findall(r"\w+", str(errors.__doc__)) if word in names}
    # The others are for the server's own logs; catching Unreachable catches them.
    private = {"DatabaseUnreachable", "DiskFull", "DiskFailed", "ServerBusy"}
    assert names - set(torchyard.__all__) == private


def test_command_builds_the_job_file() -> None:
    job = command(
        name="mine",
        command="python train.py --data ${{inputs.data}} --lr ${{inputs.lr}}",
        code=Path("src"),
        environment="azureml:python@latest",
        inputs={
            "data": Input(type="uri_file", path="a.csv", mode="download"),
            "lr": 0.0,
            "flag": False,
            "far": {"type": "uri_folder", "path": "azureml:digits:1"},
        },
        outputs={"model": Output(type="custom_model", name="digits"), "rest": None},
        compute="cpu",
        distribution="PyTorch",
        instance_count=2,
        shm_size="2g",
        timeout=60,
        tags={"a": "b"},
    )
    assert job.to_dict() == {
        "type": "command",
        "name": "mine",
        "tags": {"a": "b"},
        "command": "python train.py --data ${{inputs.data}} --lr ${{inputs.lr}}",
        "code": "src",
        "environment": "azureml:python@latest",
        "inputs": {
            "data": {"type": "uri_file", "path": "a.csv", "mode": "download"},
            "lr": 0.0,
            "flag": False,
            "far": {"type": "uri_folder", "path": "azureml:digits:1"},
        },
        "outputs": {"model": {"type": "custom_model", "name": "digits"}, "rest": {}},
        "compute": "cpu",
        "distribution": {"type": "PyTorch"},
        "resources": {"instance_count": 2, "shm_size": "2g"},
        "limits": {"timeout": 60},
    }
    assert "<td style='text-align:left'>mine</td>" in job._repr_html_()


def test_inputs_and_outputs_of_a_command_job_can_be_set() -> None:
    job = command(command="x", environment="python", inputs={"lr": 0.1, "n": 1})
    job.inputs["lr"] = 0.01
    job.inputs["data"] = Input(path="a.csv", type="uri_file")
    del job.inputs["n"]
    job.outputs["model"] = Output(name="digits")
    job.outputs["rest"] = None
    body = job.to_dict()
    assert body["inputs"] == {"lr": 0.01, "data": {"type": "uri_file", "path": "a.csv"}}
    assert body["outputs"] == {"model": {"type": "uri_folder", "name": "digits"}, "rest": {}}
    assert dict(job.inputs) == body["inputs"] and len(job.outputs) == 2 and "n" not in job.inputs
    bare = command(command="x", environment="python")
    assert not bare.inputs and "inputs" not in bare.to_dict()
    bare.inputs = {"lr": 1}
    assert bare.to_dict()["inputs"] == {"lr": 1}
    with pytest.raises(KeyError):
        del bare.inputs["n"]


def test_create_get_list(client: Client, server: ServedWorkspace) -> None:
    Path("src").mkdir()
    Path("src/train.py").write_text("print(1)")
    job = client.jobs.create(command(command="python train.py", code="src", environment="python"))
    assert job.status == job.raw["status"] == "NotStarted" and job.name
    posted = server.document(job.name)
    assert posted["code"].startswith("snapshot:") and posted["experiment_name"] == "here"
    server.launched(job.name)
    begun = client.jobs.get(job.name)
    assert begun == client.jobs.get(job.name) != job and len({begun, begun.refresh()}) == 1
    listed = client.jobs.list()
    assert [row.name for row in listed] == [job.name]
    assert f"/ui/workspaces/{server.name}/jobs/{job.name}' " in listed._repr_html_()
    assert "<b>" not in client.jobs.list()[:1]._repr_html_()
    with pytest.raises(FrozenInstanceError):
        job.status = "Completed"  # type: ignore[misc]
    assert repr(job) == f"Job(name='{job.name}', display_name='{job.name}', status='NotStarted')"
    with pytest.raises(InvalidInput, match="unknown key `comand`") as caught:
        client.jobs.create({"command": "x", "environment": "python", "comand": "y"})
    assert caught.value.code == "invalid_spec" and caught.value.at == ("comand",)
    with pytest.raises(InvalidInput, match="not list"):
        client.jobs.create([])  # type: ignore[arg-type]
    assert client.jobs.validate({"command": "x", "environment": "python"}) == []


def test_html_is_escaped(client: Client, server: ServedWorkspace) -> None:
    server.start("a", display_name="<script>x</script>")
    assert "<script>" not in client.jobs.get("a")._repr_html_()
    assert "<script>" not in client.jobs.list()._repr_html_()


def test_stream_into_a_notebook(
    client: Client, server: ServedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "größer\n".encode()
    job = server.start("a")
    job.log(text[:3])
    job.log(text[3:])
    job.complete()
    cell = io.StringIO()
    monkeypatch.setattr(sys, "stdout", cell)
    ended = client.jobs.stream("a")
    assert "\ngrößer\n" in cell.getvalue() and ended.status == "Completed"
    out = io.BytesIO()
    client.jobs.stream("a", out=out)
    assert out.getvalue() == text


@pytest.mark.parametrize("cuts", [[], [300], [1000]], ids=["whole", "at once", "later"])
def test_many_files_come_in_bundles_and_what_they_lack_one_by_one(
    server: ServedWorkspace, tmp_path: Path, cuts: list[int]
) -> None:
    job = server.start("a")
    contents = {f"ü {n}.bin": bytes([n]) * 10 * n for n in range(20)}
    contents["large.bin"] = b"x" * 200_000
    for name, content in contents.items():
        job.write(f"outputs/{name}", content)
    progress: list[int] = []

    class Count:
        def total(self, size_bytes: int) -> None:
            progress.append(size_bytes)

        def add(self, size_bytes: int) -> None:
            progress.append(-size_bytes)

    relay, before = Relay(server.url, cuts, "/bundle"), len(server.requests)
    settings = Settings(tmp_path, relay.url, server.token)
    with Client(workspace=server.name, settings=settings) as client:
        written = client.jobs.download("a", tmp_path / "to", count=Count())
    relay.stop()
    assert {path.name: path.read_bytes() for path in written} == contents
    assert sum(progress) == 0 and progress[0] == 1900 + 200_000
    alone = [path for _, path in server.requests[before:] if "/files/" in path]
    assert (len(alone) == 1) == (not cuts) and not relay.cuts


def test_the_workspace_of_config_json(
    server: ServedWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aml_config").mkdir()
    (tmp_path / "aml_config/config.json").write_text('{"workspace_name": "vision"}')
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    with Client(settings=Settings(tmp_path, server.url, server.token)) as client:
        assert client.workspace == "vision" and "vision" in repr(client)
    with Client(
        workspace="speech", settings=Settings(tmp_path, server.url, server.token)
    ) as client:
        assert client.workspace == "speech"


def test_an_uncaught_error_shows_its_hint(client: Client, tmp_path: Path) -> None:
    script = "from torchyard import NotFound\nraise NotFound('no job `a`', 'list them')"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    last = "torchyard.base.errors.NotFound: no job `a`\n"
    assert ran.stderr.endswith(last + "hint: list them\n")


def test_an_uncaught_error_controls_no_terminal() -> None:
    script = "from torchyard import NotFound\nraise NotFound('a\x1b[2J\x9b\u202e', 'b\x07')"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    # The traceback shows the script's own line from Python 3.13 on.
    last = ran.stderr.splitlines()[-2:]
    assert last == [r"torchyard.base.errors.NotFound: a\x1b[2J\x9b\u202e", r"hint: b\x07"]


def _resources(kind: type[Resource] = Resource) -> Iterator[type[Resource]]:
    for each in kind.__subclasses__():
        yield each
        yield from _resources(each)


def test_what_a_server_answers_is_not_made_by_hand() -> None:
    for kind in {*_resources(), torchyard.Environment, torchyard.Model}:
        with pytest.raises(InvalidInput, match=f"`{kind.__name__}` is what a server") as raised:
            kind(name="mine", path=".", pip_requirements=["torch"])
        assert raised.value.hint
    with pytest.raises(InvalidInput) as raised:
        torchyard.Environment(pip_requirements=["torch"])  # type: ignore[call-arg]
    assert 'command(environment={"pip_requirements": ["torch==2.13.0"]})' in raised.value.hint
    with pytest.raises(InvalidInput):
        torchyard.Environment("mine")  # type: ignore[arg-type, call-arg]


def test_a_job_can_be_copied_and_pickled(client: Client, server: ServedWorkspace) -> None:
    server.start("a")
    stage = Stage(
        raw={"name": "Running"},
        name="Running",
        started_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
        ended_at=None,
        duration_s=None,
        waited_for="",
    )
    assert copy.copy(client.jobs.get("a")) == client.jobs.get("a")
    assert copy.deepcopy(stage) == stage and pickle.loads(pickle.dumps(stage)) == stage


def test_a_pipeline_component_brings_the_files_of_its_steps(
    client: Client, server: ServedWorkspace, tmp_path: Path
) -> None:
    folder = tmp_path / "there"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "prep.py").write_text("print()\n")
    (folder / "prep.yml").write_text(
        "name: prep\ntype: command\ncommand: python prep.py\ncode: src\nenvironment: python\n"
    )
    document = {"name": "outer", "type": "pipeline", "jobs": {"a": {"component": "prep.yml"}}}
    client.components.create(document, folder)
    node = {"type": "pipeline", "component": "azureml:outer@latest"}
    client.jobs.create({"name": "uses", "type": "pipeline", "jobs": {"inner": node}})
    eventually(lambda: client.pipelines.steps("uses")[0].job, "its step to start")
    snapshot = server.document("uses_inner-a")["code"].removeprefix("snapshot:")
    files = server.services.blobs.of(server.name).snapshot(snapshot).files
    assert [file.path for file in files] == ["prep.py"]
