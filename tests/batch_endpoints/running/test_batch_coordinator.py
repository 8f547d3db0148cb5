"""Which mini-batches are given out, what becomes of those that fail, what a killed job finds."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchyard.batch_endpoints.running.in_job.coordinator import Coordinator
from torchyard.batch_endpoints.running.in_job.progress import Progress
from torchyard.worker.diagnosis import rank_notices

HEAD = (
    '{"files": 100, "sha256": '
    f'"{hashlib.sha256(chr(0).join(f"f{n:03}" for n in range(100)).encode()).hexdigest()}"}}\n'
)
Begin = Callable[[Any, list[str]], Progress]
COUNT = 100
FILES = [f"f{number:03}" for number in range(COUNT)]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """What is on the disk, opened; closed when the test has ended."""
    made: list[Progress] = []

    def opened(job_settings: Any, files: list[str]) -> Progress:
        if made:
            made[-1].close()
        made.append(Progress(job_settings, files))
        return made[-1]

    yield opened
    for each in made:
        each.close()


def settings(folder: Path, **changes: Any) -> Any:
    values = {
        "records": str(folder / "outputs"),
        "output": str(folder / "score"),
        "predictions": str(folder / "score" / "predictions.csv"),
        "appends_rows": True,
        "mini_batch_size": 7,
        "max_retries": 1,
        "error_threshold": -1,
        "splits_failed_batches": True,
        **changes,
    }
    return SimpleNamespace(**values)


def score(
    coordinator: Coordinator, bad: set[str], luck: random.Random, limit: int = 10**6
) -> list[str]:
    """Score in a made-up order with three processes; returns the files of every call."""
    batches: list[Any] = []
    calls: list[str] = []
    while not coordinator.is_over and limit > 0:
        batch = coordinator.next(0) if len(batches) < 3 else None
        if batch is not None:
            batches.append(batch)
            continue
        batch = batches.pop(luck.randrange(len(batches)))
        if luck.random() < 0.1:
            coordinator.give_back(batch)
            continue
        paths = coordinator.paths(batch)
        calls += paths
        limit -= 1
        if bad & set(paths):
            coordinator.report(batch, {"error": f"poison in {sorted(bad & set(paths))[0]}"})
        else:
            coordinator.report(batch, {"rows": list(paths), "count": len(paths)})
    return calls


def rows(folder: Path) -> list[str]:
    return (folder / "score" / "predictions.csv").read_text().splitlines()


@pytest.mark.parametrize("seed", range(20))
def test_each_file_is_scored_once_or_named_however_batches_end(
    begin: Begin, tmp_path: Path, seed: int
) -> None:
    luck = random.Random(seed)
    bad = set(luck.sample(FILES, luck.randrange(6)))
    job_settings = settings(tmp_path, mini_batch_size=luck.randrange(1, 40))
    progress = begin(job_settings, FILES)
    coordinator = Coordinator(job_settings, FILES, progress)
    score(coordinator, bad, luck)
    assert coordinator.failure == ""
    assert sorted(rows(tmp_path)) == sorted(set(FILES) - bad)
    assert {path for path, _ in progress.failed} == bad


@pytest.mark.parametrize("seed", range(20))
def test_a_job_that_is_cut_off_anywhere_scores_nothing_twice(
    begin: Begin, tmp_path: Path, seed: int
) -> None:
    luck = random.Random(seed)
    bad = {"f050"}
    job_settings = settings(tmp_path)
    while True:
        progress = begin(job_settings, FILES)
        coordinator = Coordinator(job_settings, FILES, progress)
        score(coordinator, bad, luck, limit=luck.randrange(1, 8))
        progress.close()
        if coordinator.is_over:
            break
        # What was being written is cut off.
        for name in ("score/predictions.csv", "outputs/batch/progress.jsonl"):
            if luck.random() < 0.5:
                file = tmp_path / name
                file.write_bytes(file.read_bytes()[: -luck.randrange(1, 9)])
    assert sorted(rows(tmp_path)) == sorted(set(FILES) - bad)
    assert [path for path, _ in progress.failed] == ["f050"]
    failed = (tmp_path / "outputs" / "failed_files.csv").read_text().splitlines()
    assert failed == ["file,error", "f050,poison in f050"]


def test_another_input_begins_again(begin: Begin, tmp_path: Path) -> None:
    job_settings = settings(tmp_path)
    progress = begin(job_settings, FILES)
    score(Coordinator(job_settings, FILES, progress), set(), random.Random(1), limit=3)
    assert begin(job_settings, [*FILES, "new"]).done == []
    assert rows(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]\n", '{"files": 100}\n', "null\n{}\n", HEAD + "{}\n", HEAD + '{"bytes": "x"}\n'],
)
def test_notes_that_cannot_be_read_begin_again(begin: Begin, tmp_path: Path, text: str) -> None:
    job_settings = settings(tmp_path)
    begin(job_settings, FILES)
    (tmp_path / "outputs" / "batch" / "progress.jsonl").write_text(text)
    assert begin(job_settings, FILES).done == []


@pytest.mark.parametrize(("threshold", "fails"), [(0, True), (1, True), (2, False), (-1, False)])
def test_the_threshold_counts_files(
    begin: Begin, tmp_path: Path, threshold: int, fails: bool
) -> None:
    job_settings = settings(tmp_path, error_threshold=threshold)
    coordinator = Coordinator(job_settings, FILES, begin(job_settings, FILES))
    score(coordinator, {"f001", "f099"}, random.Random(3))
    assert bool(coordinator.failure) == fails
    if fails:
        text = f"{threshold + 1} of 100 files failed, more than `error_threshold: {threshold}`"
        assert coordinator.failure.startswith(text) and "poison in f" in coordinator.failure


def test_a_mini_batch_counts_whole_where_it_is_not_divided(begin: Begin, tmp_path: Path) -> None:
    job_settings = settings(tmp_path, splits_failed_batches=False, mini_batch_size=10)
    progress = begin(job_settings, FILES)
    calls = score(Coordinator(job_settings, FILES, progress), {"f015"}, random.Random(1))
    assert [path for path, _ in progress.failed] == FILES[10:20]
    assert calls.count("f015") == 2


def test_fewer_rows_than_files_count_as_failed(begin: Begin, tmp_path: Path) -> None:
    job_settings = settings(tmp_path, mini_batch_size=50, error_threshold=9)
    coordinator = Coordinator(job_settings, FILES, begin(job_settings, FILES))
    batch = coordinator.next(0)
    assert batch is not None
    coordinator.report(batch, {"rows": ["x"] * 40, "count": 40})
    assert "10 of 100 files failed" in coordinator.failure


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"error": "run() returned nothing"}, "`f000` and 99 more: run() returned nothing"),
        ({"rows": [], "count": 0}, "run() returned fewer rows than files"),
    ],
)
def test_a_job_none_of_whose_files_was_scored_fails(
    begin: Begin, tmp_path: Path, answer: dict[str, Any], reason: str
) -> None:
    job_settings = settings(tmp_path, error_threshold=-1)
    coordinator = Coordinator(job_settings, FILES, begin(job_settings, FILES))
    while (batch := coordinator.next(0)) is not None:
        coordinator.report(batch, answer)
    assert coordinator.failure.startswith("100 of 100 files failed; ")
    assert reason in coordinator.failure


def test_files_that_failed_are_a_notice_of_the_job(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHYARD_ERRORS", str(tmp_path))
    job_settings = settings(tmp_path)
    coordinator = Coordinator(job_settings, FILES, begin(job_settings, FILES))
    score(coordinator, {"f007"}, random.Random(4))
    coordinator.report_end()
    (notice,) = rank_notices.read(tmp_path)
    assert notice == "99 of 100 files scored, 1 failed; `f007`: poison in f007"


def test_an_attempt_after_too_many_failures_fails_at_once(begin: Begin, tmp_path: Path) -> None:
    job_settings = settings(tmp_path, error_threshold=0)
    progress = begin(job_settings, FILES)
    score(Coordinator(job_settings, FILES, progress), {"f000"}, random.Random(1))
    again = Coordinator(job_settings, FILES, begin(job_settings, FILES))
    assert again.is_over and "f000" in again.failure


def test_names_that_are_not_utf8_are_written(begin: Begin, tmp_path: Path) -> None:
    job_settings = settings(tmp_path)
    name = b"\xff\n.txt".decode(errors="surrogateescape")
    progress = begin(job_settings, [name])
    coordinator = Coordinator(job_settings, [name], progress)
    score(coordinator, {name}, random.Random(2))
    assert [path for path, _ in begin(job_settings, [name]).failed] == [name]
    head = json.loads((tmp_path / "outputs/batch/progress.jsonl").read_text().splitlines()[0])
    assert head["files"] == 1
