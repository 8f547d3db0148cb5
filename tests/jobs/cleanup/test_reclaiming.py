"""`yard gc` on the server: what nobody needs goes, and nothing else."""

from __future__ import annotations

import os
import random
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs import support
from torchyard.base.blobs import Blobs
from torchyard.base.clock import SystemClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound, TorchyardError
from torchyard.environments.assembly import Environments
from torchyard.environments.packages import caches
from torchyard.jobs.cleanup import reclaiming
from torchyard.jobs.cleanup import reclaiming_settings as settings
from torchyard.jobs.cleanup.reclaiming import DAY_S, GcOptions
from torchyard.jobs.records import store
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.services import Services
from torchyard.shared import locks

_OLD_S = 40 * DAY_S


@pytest.fixture
def services(tmp_path: Path, db: Database) -> Services:
    made = support.make_services(tmp_path, db, SystemClock())  # type: ignore[arg-type]
    real = Environments(tmp_path, db, made.clock, {}, platform="test")  # type: ignore[arg-type]
    made.environments.folders = real.folders
    return made


def _snapshot(services: Services, *contents: bytes) -> str:
    files = []
    for number, content in enumerate(contents):
        sha256 = services.blobs.of("default").put_bytes(content)
        files.append({"path": f"f{number}", "sha256": sha256, "size": len(content)})
    return services.blobs.of("default").put_snapshot({"files": files}).id


def _age(path: Path, seconds: float = _OLD_S) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def _age_blobs(blobs: Blobs) -> None:
    for sha256, _ in blobs.all():
        _age(blobs.path(sha256))


def _end(services: Services, job: Job) -> None:
    now = services.clock.now()
    with services.db.write() as connection:
        store.change_job(connection, job.id, status=Status.COMPLETED, ended_at=now)


@pytest.mark.parametrize("seed", range(12))
def test_what_a_record_names_stays(services: Services, seed: int) -> None:
    chance = random.Random(seed)
    pool = [chance.randbytes(20) for _ in range(30)]
    snapshots: dict[str, None] = {}
    for _ in range(15):
        contents = chance.sample(pool, chance.randint(1, 6))
        snapshots[_snapshot(services, *contents)] = None
    jobs = []
    for snapshot in chance.sample(sorted(snapshots), 9):
        data_input = {"type": "uri_folder", "path": f"snapshot:{snapshot}"}
        references: list[dict[str, Any]] = [
            {"code": f"snapshot:{snapshot}"},
            {"inputs": {"data": data_input}, "command": "ls ${{inputs.data}}"},
            {"properties": {"made_from": f"it was snapshot:{snapshot}, I think"}},
            {"tags": {"note": f"snapshot:{snapshot}"}},
        ]
        job = support.submit(services, **chance.choice(references))
        if chance.random() < 0.5:
            _end(services, job)
        jobs.append((job, snapshot))
    _age_blobs(services.blobs.of("default"))
    # One that is new although nobody names it: an upload that is in progress.
    under_way = services.blobs.of("default").put_bytes(b"in progress")
    reclaiming.reclaim(services, GcOptions(older_than_s=0))
    left = {sha256 for sha256, _ in services.blobs.of("default").all()}
    expected = {under_way}
    for _, snapshot in jobs:
        assert services.blobs.of("default").snapshot(snapshot)
        expected |= services.blobs.of("default").parts(snapshot)
    assert left == expected


def test_asked_for_again_is_new(services: Services) -> None:
    old = _snapshot(services, b"a", b"b")
    other = _snapshot(services, b"c")
    _age_blobs(services.blobs.of("default"))
    # A client that was told that nothing is missing sends nothing, and goes on.
    parts = sorted(services.blobs.of("default").parts(old))
    assert services.blobs.of("default").missing(parts) == []
    reclaiming.reclaim(services, GcOptions())
    assert services.blobs.of("default").snapshot(old)
    with pytest.raises(NotFound):
        services.blobs.of("default").snapshot(other)


def test_a_snapshot_that_lost_a_file_is_asked_for_again(services: Services) -> None:
    snapshot = _snapshot(services, b"a", b"b")
    services.blobs.of("default").path(services.blobs.of("default").put_bytes(b"b")).unlink()
    with pytest.raises(TorchyardError, match="is incomplete"):
        support.submit(services, code=f"snapshot:{snapshot}")


@pytest.mark.slow
def test_submissions_beside_removals(services: Services) -> None:
    """A job that was created keeps its code, whenever the removal runs."""
    snapshots = [_snapshot(services, b"%d" % number, b"shared") for number in range(40)]
    _age_blobs(services.blobs.of("default"))
    stop = threading.Event()
    failures: list[BaseException] = []

    def clean() -> None:
        while not stop.is_set():
            try:
                reclaiming.reclaim(services, GcOptions(older_than_s=0))
            except BaseException as error:
                failures.append(error)
                return

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    remaining = []
    try:
        for snapshot in snapshots:
            try:
                support.submit(services, code=f"snapshot:{snapshot}")
            except TorchyardError:
                continue  # removed before: the client uploads it again
            remaining.append(snapshot)
    finally:
        stop.set()
        cleaner.join(60)
    assert not failures
    reclaiming.reclaim(services, GcOptions(older_than_s=0))
    for snapshot in remaining:
        assert (
            services.blobs.of("default").missing(services.blobs.of("default").parts(snapshot)) == []
        )


def test_environments_of_open_jobs_stay(services: Services, tmp_path: Path) -> None:
    running = support.submit(services)
    with services.db.read() as connection:
        needed = connection.execute(store.jobs.select()).one().environment_hash
    for name in (needed, "a" * 64, "b" * 64):
        folder = tmp_path / "environments" / name
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * 1000)
        _age(folder, 3 * DAY_S if name.startswith("b") else _OLD_S)
    items = {item.name: item for item in reclaiming.survey(services, GcOptions())}
    assert (items[needed].remove, items[needed].reason) == (False, f"job `{running.name}` needs it")
    assert items["a" * 64].remove and not items["b" * 64].remove
    reclaiming.reclaim(services, GcOptions(budget_bytes=1000))
    assert [hash for hash, _ in services.environments.folders.all()] == [needed]
    _end(services, running)
    reclaiming.reclaim(services, GcOptions())
    assert list(services.environments.folders.all()) == []


def test_inputs_that_a_job_may_read_stay(services: Services, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "data"
    since = _snapshot(services, b"x")
    job = support.submit(
        services,
        inputs={"data": {"type": "uri_folder", "path": f"snapshot:{since}"}},
        command="ls ${{inputs.data}}",
    )
    long_ago = services.clock.now() - timedelta(days=30)
    with services.db.write() as connection:
        store.change_job(connection, job.id, created_at=long_ago)
    for name, days in (("a" * 32, 29), ("b" * 32, 31)):
        (cache / name).mkdir(parents=True)
        (cache / name / "file").write_bytes(b"x")
        (cache / name).chmod(0o755)
        _age(cache / name, days * DAY_S)
    reclaiming.reclaim(services, GcOptions())
    assert [name for name, _ in services.fetcher.copies()] == ["a" * 32]


def test_scratch_and_logs(services: Services, tmp_path: Path) -> None:
    first, second = support.submit(services), support.submit(services)
    for job in (first, second):
        services.logs.append(job.workspace, job.name, 1, "user_logs/std_log.txt", 0, b"x" * 100)
        _end(services, job)
    for name in ("gone", "new"):
        (tmp_path / "scratch" / name / "node-0").mkdir(parents=True)
    _age(tmp_path / "scratch" / "gone")
    reclaiming.reclaim(services, GcOptions())
    assert [folder.name for folder in (tmp_path / "scratch").iterdir()] == ["new"]
    assert list(services.logs.list(first.workspace, first.name))
    reclaiming.reclaim(services, GcOptions(logs_bytes=150))
    assert not list(services.logs.list(first.workspace, first.name))
    assert list(services.logs.list(second.workspace, second.name))


def test_one_at_a_time_and_nothing_on_a_survey(services: Services) -> None:
    _snapshot(services, b"a")
    _age_blobs(services.blobs.of("default"))
    assert [thing.remove for thing in reclaiming.survey(services, GcOptions())] == [True]
    assert len(list(services.blobs.of("default").all())) == 2
    with reclaiming._exclusive(services.home), pytest.raises(Conflict):
        reclaiming.reclaim(services, GcOptions())


def _draft(services: Services, path: str, *, old: bool) -> Path:
    """A draft as a killed program leaves it."""
    made = services.home / path
    if path.endswith("/"):
        made.mkdir(parents=True)
        (made / "inner").write_bytes(b"x" * 1000)
        if old:
            _age(made / "inner")
    else:
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(b"x" * 1000)
    if old:
        _age(made)
    return made


_DRAFTS = [
    f"environments/.building-{'ab' * 32}-123/",
    f"environments/.removing-{'ab' * 32}/",
    f"cache/data/{'cd' * 16}.part/",
    "cache/.removing-uv/",
    "datastores/default/workspaceartifactstore/job/.weights.bin.0123456789ab.part",
    f"datastores/default/workspaceartifactstore/.uploads/{'ef' * 16}/",
    "blobs/ab/.abcdef.0123456789ab.part",
]


@pytest.mark.parametrize("path", _DRAFTS)
def test_what_was_begun_and_never_ended_goes(services: Services, path: str) -> None:
    (services.home / "cache/data/locks").mkdir(parents=True)
    (services.home / "environments").mkdir()
    draft = _draft(services, path, old=True)
    (item,) = [
        candidate
        for candidate in reclaiming.survey(services, GcOptions())
        if candidate.kind == "stale_file"
    ]
    assert item.remove and "interrupted" in item.reason and item.size_bytes >= 1000
    assert item.name == path.rstrip("/")
    assert draft.exists()
    (done,) = [
        candidate
        for candidate in reclaiming.reclaim(services, GcOptions())
        if candidate.kind == "stale_file"
    ]
    assert done.remove and not draft.exists()


@pytest.mark.parametrize("path", _DRAFTS)
def test_what_may_be_under_way_stays(services: Services, path: str) -> None:
    draft = _draft(services, path, old=False)
    (item,) = [
        candidate
        for candidate in reclaiming.reclaim(services, GcOptions())
        if candidate.kind == "stale_file"
    ]
    assert not item.remove and "may be in progress" in item.reason
    assert draft.exists()


def test_a_draft_with_a_new_file_in_it_stays(services: Services) -> None:
    draft = _draft(services, _DRAFTS[5], old=True)
    (draft / "2").write_bytes(b"part")
    _age(draft)
    reclaiming.reclaim(services, GcOptions())
    assert (draft / "2").exists()


def test_a_draft_that_is_worked_on_stays_however_old(services: Services) -> None:
    """A slow build writes nothing for a day; it holds its lock."""
    (services.home / "environments").mkdir()
    draft = _draft(services, _DRAFTS[0], old=True)
    with locks.hold(services.home / "environments" / f"{'ab' * 32}.lock"):
        (item,) = [
            candidate
            for candidate in reclaiming.reclaim(services, GcOptions())
            if candidate.kind == "stale_file"
        ]
    assert not item.remove and "in use again" in item.reason
    assert draft.exists()


@pytest.mark.parametrize("name", ["weights.part", ".hidden", ".notes.part", ".x.zz3456789abc.part"])
def test_a_users_own_file_is_not_stale(services: Services, name: str) -> None:
    stored = _draft(services, f"datastores/default/workspaceartifactstore/job/{name}", old=True)
    assert not [
        item for item in reclaiming.reclaim(services, GcOptions()) if item.kind == "stale_file"
    ]
    assert stored.exists()


@pytest.mark.parametrize("name", ["uv", "bytecode"])
def test_a_cache_of_builds_goes_by_age_and_by_size(services: Services, name: str) -> None:
    draft = _draft(services, f"cache/{name}/", old=True)
    other = _draft(services, "cache/of-somebody/", old=True)
    _draft(services, "cache/snapshots/", old=True)
    items = {
        item.name: item for item in reclaiming.survey(services, GcOptions()) if item.kind == "cache"
    }
    assert items[name].remove and "unused for 40" in items[name].reason
    assert (
        not items["of-somebody"].remove and items["of-somebody"].reason == "not made by torchyard"
    )
    assert not items["snapshots"].remove and items["snapshots"].reason.startswith(
        "used by the `yard` command"
    )
    with caches.in_use(services.node.cache / name):
        # Used now, so that only its size speaks against it; a user's lock keeps it.
        assert not _cache(reclaiming.survey(services, GcOptions()), name).remove
        options = GcOptions(caches_bytes=999)
        assert _cache(reclaiming.survey(services, options), name).reason.endswith(
            "beyond the budget of caches"
        )
        assert not _cache(reclaiming.reclaim(services, options), name).remove
        assert draft.exists()
    assert not _cache(reclaiming.reclaim(services, GcOptions(caches_bytes=1000)), name).remove
    assert _cache(reclaiming.reclaim(services, options), name).remove
    assert not draft.exists() and other.exists()
    assert not list((services.home / "cache").glob(".removing-*"))


def _cache(items: list[reclaiming.GcItem], name: str) -> reclaiming.GcItem:
    return next(item for item in items if item.kind == "cache" and item.name == name)


def test_what_is_asked_comes_before_what_is_stored(tmp_path: Path) -> None:
    assert settings.options(tmp_path, {}) == GcOptions()
    settings.save(tmp_path, {"budget_bytes": 5, "older_than_s": 60.0})
    settings.save(tmp_path, {"logs_bytes": 7})
    assert settings.options(tmp_path, {}) == GcOptions(60.0, 5, 7)
    assert settings.options(tmp_path, {"budget_bytes": 9}) == GcOptions(60.0, 9, 7)
    assert settings.options(tmp_path, {"budget_bytes": None}) == GcOptions(60.0, None, 7)
    assert settings.save(tmp_path, {"budget_bytes": None, "older_than_s": None}) == {
        "logs_bytes": 7
    }
    assert settings.options(tmp_path, {}) == GcOptions(logs_bytes=7)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": 5}, "did you mean `budget_bytes`"),
        ({"budget_bytes": -1}, "0 or more"),
        ({"budget_bytes": True}, "0 or more"),
        ({"budget_bytes": 1.5}, "0 or more"),
        ({"older_than_s": "14d"}, "0 or more"),
        ({"older_than_s": float("nan")}, "0 or more"),
        ({"grace_s": 1}, "use one of: older_than_s"),
    ],
)
def test_an_invalid_option_is_refused(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings.save(tmp_path, changes)
    assert words in caught.value.hint
    assert not (tmp_path / "gc.json").exists()


def test_settings_that_were_broken_by_hand_are_told(tmp_path: Path) -> None:
    (tmp_path / "gc.json").write_text("{budget: 5}")
    with pytest.raises(InvalidInput) as caught:
        settings.options(tmp_path, {})
    assert "gc.json" in caught.value.message and "--save" in caught.value.hint
