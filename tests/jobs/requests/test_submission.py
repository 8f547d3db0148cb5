"""From a job file to a job: references are pinned, mistakes are refused with their place."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from jobs import support
from jobs.support import ME, WORKSPACE, Worker, attempt_of, submit
from torchyard.base.blobs import SnapshotFile
from torchyard.base.clock import FakeClock
from torchyard.base.errors import Conflict, InvalidSpec
from torchyard.data import assets
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts, model_sources
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import job_queries, submission
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.models import actions as models
from torchyard.models.types import Model


def snapshot(services: Services, *paths: str) -> str:
    files = [
        SnapshotFile(
            path, services.blobs.of("default").put_bytes(path.encode()), len(path.encode())
        )
        for path in paths
    ]
    return services.blobs.of("default").put_snapshot({"files": [asdict(file) for file in files]}).id


def done(services: Services, **changes: Any) -> Job:
    """A job that ran to its end and left `outputs/model.pt` and `best/weights.bin`."""
    job = submit(services, outputs={"best": None}, **changes)
    scheduler = Scheduler(services, FakeExecutor(), "http://127.0.0.1:1")
    scheduler.run_round()
    with artifacts.writing(services.datastores, job, "outputs/model.pt") as writing:
        writing.write(b"weights")
    with artifacts.writing_output(services, job, "best", "weights.bin") as writing:
        writing.write(b"best weights")
    Worker(services, attempt_of(services, job)).whole_life()
    assert support.again(services, job).status.ended
    return job


def pinned(services: Services, path: str, **keys: Any) -> str:
    job = submit(services, command="x ${{inputs.a}}", inputs={"a": {"path": path, **keys}})
    written: str = job.document["inputs"]["a"]["path"]
    return written


def notices(services: Services, job: Job) -> list[str]:
    return notices_of(actions.events(services.db, job))


def register(services: Services, name: str, path: str, kind: str = "custom_model") -> Model:
    return models.register(
        services.db, services.clock, services.datastores,
        lambda workspace, reference: model_sources.find(services, workspace, reference),
        WORKSPACE, {"name": name, "path": path, "type": kind}, ME.user,
    )  # fmt: skip


def test_outputs_of_a_job_are_pinned_to_their_paths(services: Services) -> None:
    first = done(services)
    for path, keys, stands_for in (
        (f"azureml://jobs/{first.name}/outputs/best", {}, f"azureml/{first.name}/best"),
        (f"azureml://jobs/{first.name}/outputs/best/paths/weights.bin", {"type": "uri_file"},
         f"azureml/{first.name}/best/weights.bin"),
        (f"runs:/{first.name}/outputs/model.pt", {"type": "uri_file"},
         f"ExperimentRun/dcid.{first.name}/outputs/model.pt"),
        (f"azureml://jobs/{first.name}/outputs/artifacts/paths/outputs", {"type": "custom_model"},
         f"ExperimentRun/dcid.{first.name}/outputs"),
    ):  # fmt: skip
        assert pinned(services, path, **keys).rstrip("/").endswith(f"/paths/{stands_for}")


def test_a_model_is_pinned_to_its_version_with_a_notice(
    services: Services, clock: FakeClock
) -> None:
    first = register(services, "net", f"snapshot:{snapshot(services, 'model.pt')}")
    clock.advance(1)
    latest = register(services, "net", f"snapshot:{snapshot(services, 'a/b', 'c')}")
    for path, model in (
        ("azureml:net:1", first), ("azureml:net@latest", latest), ("azureml:net", latest)
    ):  # fmt: skip
        job = submit(services, inputs={"m": {"type": "custom_model", "path": path}})
        ends_with = f"{model.folder}/{'model.pt' if model is first else ''}"
        assert job.document["inputs"]["m"]["path"].endswith(ends_with)
        assert notices(services, job)[-1] == f"input `m`: `{path}` is model `net:{model.version}`"


def test_an_asset_is_pinned_to_its_version_and_the_same_body_is_the_same_job(
    services: Services,
) -> None:
    def new_version() -> None:
        request = assets.DataRequest("set", f"snapshot:{snapshot(services, 'x.csv')}", "uri_folder")
        assets.create(
            services.db,
            services.clock,
            services.datastores,
            services.blobs.of("default"),
            lambda *_: "",
            WORKSPACE,
            request,
            "me",
        )

    new_version()
    inputs = {"a": {"path": "azureml:set@latest"}}
    job = submit(services, name="mine", inputs=inputs)
    assert job.document["inputs"]["a"]["path"] == "azureml:set:1"
    new_version()
    again = submission.create(
        services, WORKSPACE, {**support.JOB, "name": "mine", "inputs": inputs}, ME
    )
    assert again == (support.again(services, job), False)
    with pytest.raises(Conflict):
        submit(services, name="mine", inputs={"a": {"path": "azureml:set:2"}})
    # The document names the version that was pinned.
    document = actions.document(services, WORKSPACE, "mine")
    assert submit(services, **document).document["inputs"]["a"]["path"] == "azureml:set:1"


BAD: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"compute": "locl"}, ("compute",), "`local`"),
    ({"parent_job_name": "dne"}, ("parent_job_name",), "`done`"),
    ({"name": "a", "parent_job_name": "a"}, ("parent_job_name",), "another job"),
    ({"code": "../src"}, ("code",), "folder beside"),
    ({"code": f"snapshot:{'0' * 64}"}, ("code",), "upload the folder again"),
    ({"outputs": {"a": {"path": "/mnt/x"}}}, ("outputs", "a", "path"), "azureml://datastores"),
]
_HERE = "azureml://datastores"
BAD_INPUTS: list[tuple[str, str, str]] = [
    ("uri_folder", "azureml:nothing@latest", "yard data"),
    ("uri_folder", "azureml:net:1", "type: custom_model"),
    ("custom_model", "azureml:nte:1", "`net`"),
    ("custom_model", "azureml:net:7", "it has 1"),
    ("custom_model", "azureml:net@newest", "@latest"),
    ("triton_model", "azureml:net:1", "type: custom_model"),
    ("custom_model", "azureml://registries/r/models/m/versions/1", "register it"),
    ("uri_folder", "azureml://jobs/dne/outputs/best", "`done`"),
    ("uri_folder", "azureml://jobs/done/outputs/bst", "`best`"),
    ("uri_folder", "azureml://jobs/done/outputs/best/paths/none", "yard job download -n done"),
    ("uri_folder", "azureml://jobs/done", "azureml://datastores"),
    ("uri_folder", "runs:/waits/x", "stream -n waits"),
    ("uri_folder", "azureml://jobs/me/outputs/x", "the job that made it"),
    ("uri_folder", f"{_HERE}/workspaceblobstor/paths/x", "`workspaceblobstore`"),
]
BAD_OUTPUTS = [
    (f"{_HERE}/workspaceblobstor/paths/x", "`workspaceblobstore`"),
    (f"{_HERE}/workspaceblobstore/paths/${{{{nme}}}}", "${{name}}"),
]


def test_a_missing_reference_is_refused_with_its_place(services: Services) -> None:
    done(services, name="done")
    submit(services, name="waits")
    register(services, "net", f"snapshot:{snapshot(services, 'model.pt')}")
    before = len(job_queries.list_in(services, WORKSPACE))
    bad = list(BAD)
    for kind, path, hint in BAD_INPUTS:
        job_input = {"type": kind, "path": path}
        bad.append(({"name": "me", "inputs": {"a": job_input}}, ("inputs", "a", "path"), hint))
    for path, hint in BAD_OUTPUTS:
        bad.append(({"outputs": {"a": {"path": path}}}, ("outputs", "a", "path"), hint))
    for change, at, hint in bad:
        with pytest.raises(InvalidSpec) as refused:
            submit(services, **change)
        assert refused.value.at == at, change
        assert hint in refused.value.hint, (change, refused.value.hint)
    assert len(job_queries.list_in(services, WORKSPACE)) == before


def test_validate_takes_what_is_not_uploaded_yet(services: Services) -> None:
    local: dict[str, Any] = {"code": "local:src", "inputs": {"a": {"path": "local:data"}}}
    document = {**support.JOB, **local, "command": "x ${{inputs.a}}"}
    assert submission.check(services, WORKSPACE, document, uploaded=False).notices == ()
    with pytest.raises(InvalidSpec):
        submission.check(services, WORKSPACE, document)


def test_what_is_not_there_is_told_beside_what_is_wrong(services: Services) -> None:
    document = {
        "command": "x ${{inputs.a}} ${{inputs.b}}",
        "nmae": "first",
        "inputs": {"a": {"path": "azureml:none:1"}, "b": {"path": "azureml:neither:1"}},
        "environment": "python",
        "code": "snapshot:" + 64 * "0",
        "compute": "nobody",
        "parent_job_name": "nobody",
        "outputs": {"c": {"path": "azureml://datastores/absent/paths/x"}},
        "limits": {"timeout": -1},
    }
    with pytest.raises(InvalidSpec) as refused:
        submission.check(services, WORKSPACE, document)
    assert [each.at for each in (refused.value, *refused.value.others)] == [
        ("nmae",),
        ("inputs", "a", "path"),
        ("inputs", "b", "path"),
        ("code",),
        ("compute",),
        ("parent_job_name",),
        ("outputs", "c", "path"),
        ("limits", "timeout"),
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # What names a faulty input, or needs the cluster that the file misspells, only follows.
        ({"inputs": {"a": {"path": 3}}, "compute": "nobody"}, [("inputs", "a", "path"),
                                                               ("compute",)]),
        ({"compute": 3, "resources": {"instance_count": 99}}, [("compute",)]),
        ({"type": "pipeline", "compute": "nobody"}, [("type",)]),
    ],
)  # fmt: skip
def test_what_follows_from_a_fault_is_not_told(
    services: Services, change: dict[str, Any], expected: list[Any]
) -> None:
    document = {**support.JOB, "command": "x ${{inputs.a}}", "inputs": {"a": 1}, **change}
    with pytest.raises(InvalidSpec) as refused:
        submission.check(services, WORKSPACE, document)
    assert [each.at for each in (refused.value, *refused.value.others)] == expected


def test_tags_description_and_parent_are_stored(services: Services) -> None:
    submit(services, name="parent")
    job = submit(services, parent_job_name="parent", tags={"a": 1}, description="what it is")
    assert (job.parent, job.tags, job.description) == ("parent", {"a": "1"}, "what it is")
    assert [child.name for child in job_queries.list_in(services, WORKSPACE, parent="parent")] == [
        job.name
    ]


def test_a_machine_without_open_mpi_is_told_at_submission(
    services: Services, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    mpi = {"distribution": {"type": "mpi"}, "resources": {"instance_count": 2}}
    (notice,) = (line for line in notices(services, submit(services, **mpi)) if "mpirun" in line)
    assert "`mpi_missing`" in notice and "apt-get install openmpi-bin" in notice
    alone = submit(services, distribution={"type": "mpi"})
    for name in ("mpirun", "orted"):
        (tmp_path / name).touch(mode=0o755)
    for job in (alone, submit(services, **mpi)):
        assert not any("mpi_missing" in line for line in notices(services, job))
