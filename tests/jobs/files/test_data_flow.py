"""Data in and out of jobs, as scheduler, plan and worker routes see it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data.conftest import Web, web  # noqa: F401
from jobs.support import WORKSPACE, Worker, again, attempt_of, make_services, submit
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidSpec
from torchyard.base.files import Readable, reading
from torchyard.data import assets, datastores, url_maps
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts, data_sources
from torchyard.jobs.files import outputs as outputs_of
from torchyard.jobs.records import progress
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.models import actions as models
from torchyard.shared import locks
from torchyard.shared.plan import LaunchPlan

NAS = "azureml://datastores/nas/paths"
FILE = {"type": "uri_file"}


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    made = make_services(tmp_path / "home", db, clock)
    folder = tmp_path / "nas"
    (folder / "sets").mkdir(parents=True)
    (folder / "sets" / "a.csv").write_text("a\n")
    document = {"name": "nas", "type": "local", "path": str(folder)}
    datastores.put(db, clock, made.datastores, WORKSPACE, document, "me")
    return made


class Yard:
    """A scheduler that looks when told, and the plans it launched."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.executor = FakeExecutor()
        self.scheduler = Scheduler(services, self.executor, "http://127.0.0.1:1")

    def look_until(self, job: Job, *statuses: Status) -> Job:
        deadline = time.monotonic() + 60
        while (now := again(self.services, job)).status not in statuses:
            assert time.monotonic() < deadline, now
            self.scheduler.run_round()
            time.sleep(0.01)
        return now

    def plan(self, job: Job) -> LaunchPlan:
        self.look_until(job, Status.STARTING)
        plan: LaunchPlan = self.executor.launches[-1]
        return plan


@pytest.fixture
def yard(services: Services) -> Iterator[Yard]:
    made = Yard(services)
    yield made
    made.scheduler.preparer._fetchers.shutdown(wait=True)


def _write(services: Services, job: Job, output: str, path: str, content: bytes) -> None:
    with artifacts.writing_output(services, job, output, path) as writing:
        writing.write(content)


def _finish(yard: Yard, job: Job) -> Job:
    Worker(yard.services, attempt_of(yard.services, job)).whole_life()
    return yard.look_until(job, Status.COMPLETED)


def test_data_on_this_machine_is_used_where_it_is(
    yard: Yard, services: Services, tmp_path: Path
) -> None:
    job = submit(
        services,
        inputs={
            "data": {"path": f"{NAS}/sets"},
            "file": {"type": "uri_file", "path": f"{NAS}/sets/a.csv", "mode": "download"},
            "text": {"path": f"{NAS}/sets", "mode": "direct"},
            "n": 3,
        },
    )
    inputs = yard.plan(job).inputs
    assert inputs["data"].source == str(tmp_path / "nas" / "sets")
    assert (inputs["data"].kind, inputs["data"].mode) == ("uri_folder", "ro_mount")
    assert inputs["file"].source == str(tmp_path / "nas" / "sets" / "a.csv")
    assert (inputs["text"].kind, inputs["text"].value) == ("literal", f"{NAS}/sets")
    assert inputs["n"].value == "3"


def test_the_web_is_fetched_before_nodes_are_held(
    yard: Yard,
    services: Services,
    web: Web,  # noqa: F811
) -> None:
    web.files["/iris.csv"] = b"1\n"
    web.marks["/iris.csv"] = "v1"
    data = {"data": {"type": "uri_file", "path": f"{web.url}/iris.csv"}}
    for _ in range(2):
        source = Path(yard.plan(submit(services, inputs=data)).inputs["data"].source)
        assert source.read_bytes() == b"1\n"
    assert web.asked.count("GET /iris.csv") == 1


def test_environment_and_inputs_are_one_stage(
    yard: Yard,
    services: Services,
    web: Web,  # noqa: F811
) -> None:
    web.files["/iris.csv"] = b"1\n"
    services.environments.unbuilt.add("slow")  # type: ignore[attr-defined]
    services.environments.go_on.set()  # type: ignore[attr-defined]
    data = {"data": {"type": "uri_file", "path": f"{web.url}/iris.csv"}}
    job = submit(services, environment="slow", inputs=data)
    yard.look_until(job, Status.STARTING)
    spans = progress.timeline(actions.events(services.db, job))
    assert [span.name.value for span in spans] == ["Preparing", "Scaling", "Running"]
    assert spans[0].waited_for == "the environment is being built"


def test_an_input_that_cannot_be_read_ends_the_job_with_the_reason(
    yard: Yard,
    services: Services,
    web: Web,  # noqa: F811
) -> None:
    data = {"data": {"type": "uri_file", "path": f"{web.url}/none"}}
    done = yard.look_until(submit(services, inputs=data), Status.FAILED)
    assert done.error is not None and "answers 404" in done.error.message
    assert yard.executor.launches == []


def test_a_mapped_url_is_read_at_home_and_told(yard: Yard, services: Services) -> None:
    url_maps.put(
        services.db, services.clock, services.datastores, WORKSPACE, "https://far/x", f"{NAS}/sets"
    )
    job = submit(services, inputs={"data": {"type": "uri_file", "path": "https://far/x/a.csv"}})
    assert job.document["inputs"]["data"]["path"] == f"{NAS}/sets/a.csv"
    assert yard.plan(job).inputs["data"].source.endswith("nas/sets/a.csv")


@pytest.mark.parametrize(
    ("paths", "refused"),
    [
        ("paths:\n  - file: ./a.csv\n  - pattern: deep/*.csv\n", ""),
        ("paths:\n  - file: https://x/a.csv\n", "`https://x/a.csv`, which lies elsewhere"),
        ("paths:\n  - folder: ../other\n", "`../other`, which lies elsewhere"),
        ("paths: 3", "has no file `MLTable` with `paths`"),
    ],
)
def test_an_evaluated_table_is_its_folder(
    yard: Yard, services: Services, tmp_path: Path, paths: str, refused: str
) -> None:
    (tmp_path / "nas" / "sets" / "MLTable").write_text(paths)
    data = {"t": {"type": "mltable", "mode": "eval_mount", "path": f"{NAS}/sets"}}
    job = submit(services, inputs=data)
    if not refused:
        plan = yard.plan(job).inputs["t"]
        assert (plan.kind, plan.mode, plan.source[-5:]) == ("mltable", "ro_mount", "/sets")
        return
    done = yard.look_until(job, Status.FAILED)
    assert done.error is not None and refused in done.error.message


def _content(file: Readable) -> bytes:
    with reading(file) as opened:
        return opened.read()


def test_outputs_go_where_they_are_told(yard: Yard, services: Services, tmp_path: Path) -> None:
    job = submit(
        services,
        outputs={
            "plain": None,
            "there": {"path": f"{NAS}/out/${{{{name}}}}/${{{{output_name}}}}"},
            "file": {"type": "uri_file", "path": f"{NAS}/one/result.txt"},
            "home": {"path": "azureml://datastores/${{default_datastore}}/paths/x"},
            "text": {"path": f"{NAS}/t", "mode": "direct"},
            "table": {"type": "uri_file", "path": f"{NAS}/t/", "mode": "direct"},
        },
    )
    plan = yard.plan(job)
    assert (plan.outputs["file"].file, plan.outputs["text"].value) == ("result.txt", f"{NAS}/t/")
    assert plan.outputs["table"].value == f"{NAS}/t/table"
    for output, path in (
        ("plain", "m.pt"), ("there", "a/b.bin"), ("file", "result.txt"), ("home", "h"),
    ):  # fmt: skip
        _write(services, job, output, path, output.encode())
    nas, home = tmp_path / "nas", services.datastores.root(WORKSPACE, "workspaceblobstore")
    assert (nas / "out" / job.name / "there" / "a" / "b.bin").read_bytes() == b"there"
    assert (nas / "one" / "result.txt").read_bytes() == b"file"
    assert (home / "x" / "h").read_bytes() == b"home"
    assert (home / "azureml" / job.name / "plain" / "m.pt").read_bytes() == b"plain"
    listed = {(output, artifact.path) for output, artifact in artifacts.list_outputs(services, job)}
    assert listed == {
        ("plain", "m.pt"), ("there", "a/b.bin"), ("file", "result.txt"), ("home", "h")
    }  # fmt: skip
    assert _content(artifacts.output_file(services, job, "file", "result.txt")) == b"file"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("https://x/y", "not a path for an output"),
        ("azureml://datastores/nas/paths/${{nam}}", "not an expression"),
        ("azureml://datastores/nope/paths/x", "does not exist"),
    ],
)
def test_places_that_are_refused(services: Services, path: str, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        submit(services, outputs={"o": {"path": path}})


def test_named_outputs_are_registered_once(yard: Yard, services: Services) -> None:
    inputs: dict[str, Any] = {
        "set": {"name": "cleaned"},
        "net": {"type": "custom_model", "name": "net"},
    }
    job = submit(services, outputs=inputs)
    yard.plan(job)
    _write(services, job, "set", "a.csv", b"1")
    _write(services, job, "net", "m.pt", b"2")
    _finish(yard, job)
    asset = assets.get(services.db, WORKSPACE, "cleaned")
    assert (asset.version, asset.job) == ("1", job.name)
    assert asset.uri == f"azureml://datastores/workspaceblobstore/paths/azureml/{job.name}/set/"
    (model,) = models.of_job(services.db, WORKSPACE, job.name)
    assert (model.name, [file.path for file in model.files]) == ("net", ["m.pt"])
    yard.executor.finish(attempt_of(services, job).id)
    yard.scheduler.run_round()
    assert len(assets.list_in(services.db, WORKSPACE, "cleaned")) == 1
    assert len(models.of_job(services.db, WORKSPACE, job.name)) == 1


def test_neither_a_round_nor_a_request_waits_for_a_model(yard: Yard, services: Services) -> None:
    job = submit(services, outputs={"net": {"type": "custom_model", "name": "net"}})
    plain = submit(services)
    yard.plan(job)
    yard.look_until(plain, Status.STARTING)
    _write(services, job, "net", "m.pt", b"2")
    # Another server is at it, or the same one: it takes its time.
    with locks.hold(services.lock(f"outputs-{job.id % 16}")):
        Worker(services, attempt_of(services, job)).whole_life()
        Worker(services, attempt_of(services, plain)).whole_life()
        yard.scheduler.run_round()
        third = submit(services)
        yard.look_until(third, Status.STARTING)
        assert again(services, plain).status is Status.COMPLETED
        assert again(services, job).status is Status.FINALIZING
    yard.look_until(job, Status.COMPLETED)
    assert [model.name for model in models.of_job(services.db, WORKSPACE, job.name)] == ["net"]


def test_a_version_that_is_taken_is_told(yard: Yard, services: Services) -> None:
    for _ in range(2):
        job = submit(services, outputs={"o": {"name": "x", "version": "7"}})
        yard.plan(job)
        _write(services, job, "o", "a", b"1")
        _finish(yard, job)
    messages = notices_of(actions.events(services.db, job))
    assert any("could not be registered" in message for message in messages)


def test_what_one_job_left_another_reads(yard: Yard, services: Services) -> None:
    first = submit(services, outputs={"o": {"path": f"{NAS}/made"}})
    yard.plan(first)
    _write(services, first, "o", "deep/a.csv", b"1")
    _finish(yard, first)
    path = f"azureml://jobs/{first.name}/outputs/o/paths/deep"
    assert data_sources.find(services, WORKSPACE, path) == f"{NAS}/made/deep"
    second = submit(services, inputs={"data": {"path": path}})
    assert yard.plan(second).inputs["data"].source.endswith("nas/made/deep")


def test_what_a_job_left_empty_is_an_empty_folder_and_no_file(
    yard: Yard, services: Services
) -> None:
    first = submit(services, name="first", outputs={"o": {"path": f"{NAS}/made"}, "f": FILE})
    yard.plan(first)
    _finish(yard, first)
    for kind in ("uri_folder", "mltable", "custom_model"):
        document = {"type": kind, "path": "azureml://jobs/first/outputs/o"}
        plan = yard.plan(submit(services, inputs={"data": document})).inputs["data"]
        assert services.blobs.of(WORKSPACE).snapshot(plan.snapshot).files == ()
    with pytest.raises(InvalidSpec) as refused:
        submit(services, inputs={"data": {**FILE, "path": "azureml://jobs/first/outputs/f"}})
    assert refused.value.at == ("inputs", "data", "path")
    assert "no file to its output `f`" in refused.value.message


def test_what_was_taken_away_is_not_an_empty_folder(
    yard: Yard, services: Services, tmp_path: Path
) -> None:
    job = submit(services, name="first", outputs={"o": {"path": f"{NAS}/made"}})
    yard.plan(job)
    _write(services, job, "o", "a.csv", b"1")
    _finish(yard, job)
    shutil.rmtree(tmp_path / "nas" / "made")
    with pytest.raises(InvalidSpec, match="has nothing at `o`"):
        submit(services, inputs={"data": {"path": "azureml://jobs/first/outputs/o"}})


def test_an_output_that_is_a_file_is_taken_as_one(yard: Yard, services: Services) -> None:
    outputs = {"plain": FILE, "below": {**FILE, "path": f"{NAS}/made/"}, "named": {**FILE}}
    outputs["named"] |= {"name": "scores"}
    job = submit(services, name="first", outputs=outputs)
    yard.plan(job)
    for output in outputs:
        _write(services, job, output, output, b"1")
    _finish(yard, job)
    for output in outputs:
        path = f"azureml://jobs/first/outputs/{output}"
        inputs = yard.plan(
            submit(services, inputs={"file": {**FILE, "path": path}, "folder": {"path": path}})
        ).inputs
        assert inputs["file"].source == f"{inputs['folder'].source}/{output}"
    asset = assets.get(services.db, WORKSPACE, "scores", "1")
    assert asset.uri.endswith("/first/named/named")


def test_a_place_depends_on_the_job_alone() -> None:
    from torchyard.jobs.spec.inputs import Output

    destination = outputs_of.destination_of("w", "j", "o", Output())
    assert destination.uri == "azureml://datastores/workspaceblobstore/paths/azureml/j/o/"


def test_an_output_whose_place_holds_something_is_told(yard: Yard, services: Services) -> None:
    written = {
        "folder": {"path": f"{NAS}/sets"},
        "file": {"type": "uri_file", "path": f"{NAS}/sets/a.csv"},
        "new": {"path": f"{NAS}/new"},
        "own": {"path": f"{NAS}/sets/${{{{name}}}}"},
        "default": {},
    }
    job = submit(services, outputs=written)
    messages = notices_of(actions.events(services.db, job))
    assert [text.split("`")[1] for text in messages if "already" in text] == ["folder", "file"]


def test_an_output_that_stays_empty_is_told(yard: Yard, services: Services) -> None:
    job = submit(
        services,
        outputs={
            "full": {},
            "none": {},
            "nofile": {"type": "uri_file", "path": f"{NAS}/scores.csv"},
            "file": {"type": "uri_file", "path": f"{NAS}/sets/a.csv"},
        },
    )
    yard.plan(job)
    _write(services, job, "full", "a", b"1")
    _finish(yard, job)
    messages = notices_of(actions.events(services.db, job))
    assert [text.split("`")[1] for text in messages if "is empty" in text] == ["none", "nofile"]
