"""Jobs that have ended: following, their errors, their files, putting them away."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from operations import World, operation

ENDED = ("Completed", "Failed", "Canceled")


def wait(world: World, name: str, timeout_s: float = 180) -> str:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        status: str = world.ml.jobs.get(name).status
        if status in ENDED:
            return status
        time.sleep(0.5)
    raise AssertionError(f"{name} is still {status}")


@operation("Jobs", "`jobs.stream` of a job that failed")
def stream_failed(world: World) -> Any:
    output = io.StringIO()
    try:
        with redirect_stdout(output):
            world.ml.jobs.stream(world.name("failing"))
    except Exception as error:
        text = f"{output.getvalue()}\n{type(error).__name__}: {error}"
        assert "no such column: age" in text, text
        assert type(error).__name__ == "JobException", text
        return text
    raise AssertionError("it went well: " + output.getvalue())


@operation("Jobs", "every distribution ends well")
def distributions(world: World) -> Any:
    names = (
        "whole",
        "twice",
        "pytorch",
        "mpi",
        "tensorflow",
        "limits",
        "yaml",
        "local",
        "first",
        "second",
    )
    ends = {name: wait(world, world.name(name)) for name in names}
    assert set(ends.values()) == {"Completed"}, ends
    return ends


@operation("Jobs", "a canceled job is Canceled")
def canceled(world: World) -> Any:
    assert wait(world, world.name("canceled")) == "Canceled"
    return "Canceled"


def _files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


@operation("Jobs", "`jobs.download` of logs and default outputs")
def download(world: World) -> Any:
    to = world.folder / "download"
    world.ml.jobs.download(world.name("whole"), download_path=to)
    files = _files(to)
    assert "artifacts/outputs/model.txt" in files, files
    assert "artifacts/user_logs/std_log.txt" in files, files
    return files


@operation("Jobs", "`jobs.download` of one output")
def download_output(world: World) -> Any:
    to = world.folder / "download-one"
    world.ml.jobs.download(world.name("whole"), download_path=to, output_name="table")
    files = _files(to)
    assert files == ["named-outputs/table/table.csv"], files
    assert (to / files[0]).read_text() == "a,b\n" * 3
    return files


@operation("Jobs", "`jobs.download` of everything")
def download_all(world: World) -> Any:
    to = world.folder / "download-all"
    world.ml.jobs.download(world.name("whole"), download_path=to, all=True)
    files = _files(to)
    assert "named-outputs/table/table.csv" in files, files
    assert "artifacts/outputs/model.txt" in files, files
    return files


@operation("Jobs", "`jobs.list`, all pages")
def list_all(world: World) -> Any:
    names = [job.name for job in world.ml.jobs.list()]
    assert world.name("whole") in names, names
    assert len(names) > 50, "more than one page"
    assert len(names) == len(set(names)), "each once"
    return len(names)


@operation("Jobs", "`jobs.archive` and `jobs.restore`")
def archive(world: World) -> Any:
    from azure.ai.ml.constants import ListViewType

    name = world.name("twice")

    # Few are archived: a client asks once more for each job that it lists.
    def away() -> list[str]:
        jobs = world.ml.jobs.list(list_view_type=ListViewType.ARCHIVED_ONLY)
        return [job.name for job in jobs]

    world.ml.jobs.archive(name)
    assert name in away()
    world.ml.jobs.restore(name)
    assert name not in away()
    return name
