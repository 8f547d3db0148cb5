"""`yard gc` on the server: what nobody needs goes, and nothing else."""

from __future__ import annotations

import os
import random
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from jobs import rooms
from torchyard.base.blobs import Blobs
from torchyard.base.clock import SystemClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, NotFound, TorchyardError
from torchyard.environments.actions import Environments
from torchyard.jobs import reclaiming, store
from torchyard.jobs.reclaiming import DAY_S, Wishes
from torchyard.jobs.room import Room
from torchyard.jobs.types import Job, Status

_OLD_S = 40 * DAY_S


@pytest.fixture
def room(tmp_path: Path, db: Database) -> Room:
    made = rooms.make(tmp_path, db, SystemClock())  # type: ignore[arg-type]
    real = Environments(tmp_path, db, made.clock, {}, platform="test")  # type: ignore[arg-type]
    made.environments.folders = real.folders  # type: ignore[method-assign]
    made.environments.remove = real.remove  # type: ignore[method-assign]
    return made


def _snapshot(room: Room, *contents: bytes) -> str:
    files = []
    for number, content in enumerate(contents):
        sha256 = room.blobs.put_bytes(content)
        files.append({"path": f"f{number}", "sha256": sha256, "size": len(content)})
    return room.blobs.put_snapshot({"files": files}).id


def _age(path: Path, seconds: float = _OLD_S) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def _age_blobs(blobs: Blobs) -> None:
    for sha256, _, _ in blobs.all():
        _age(blobs.path(sha256))


def _end(room: Room, job: Job) -> None:
    now = room.clock.now()
    with room.db.write() as connection:
        store.change_job(connection, job.id, status=Status.COMPLETED, ended_at=now)


@pytest.mark.parametrize("seed", range(12))
def test_what_a_record_names_stays(room: Room, seed: int) -> None:
    chance = random.Random(seed)
    pool = [chance.randbytes(20) for _ in range(30)]
    snapshots = {}
    for _ in range(15):
        contents = chance.sample(pool, chance.randint(1, 6))
        snapshots[_snapshot(room, *contents)] = None
    jobs = []
    for snapshot in chance.sample(sorted(snapshots), 9):
        given = {"type": "uri_folder", "path": f"snapshot:{snapshot}"}
        how = chance.choice(
            [
                {"code": f"snapshot:{snapshot}"},
                {"inputs": {"data": given}, "command": "ls ${{inputs.data}}"},
                {"properties": {"made_from": f"it was snapshot:{snapshot}, I think"}},
                {"tags": {"note": f"snapshot:{snapshot}"}},
            ]
        )
        job = rooms.submit(room, **how)
        if chance.random() < 0.5:
            _end(room, job)
        jobs.append((job, snapshot))
    _age_blobs(room.blobs)
    # One that is new although nobody names it: an upload that is under way.
    under_way = room.blobs.put_bytes(b"under way")
    reclaiming.reclaim(room, Wishes(older_than_s=0))
    left = {sha256 for sha256, _, _ in room.blobs.all()}
    wanted = {under_way}
    for _, snapshot in jobs:
        assert room.blobs.snapshot(snapshot)
        wanted |= room.blobs.parts(snapshot)
    assert left == wanted


def test_asked_for_again_is_new(room: Room) -> None:
    old = _snapshot(room, b"a", b"b")
    other = _snapshot(room, b"c")
    _age_blobs(room.blobs)
    # A client that was told that nothing is missing sends nothing, and goes on.
    parts = sorted(room.blobs.parts(old))
    assert room.blobs.missing(parts) == []
    reclaiming.reclaim(room, Wishes())
    assert room.blobs.snapshot(old)
    with pytest.raises(NotFound):
        room.blobs.snapshot(other)


def test_a_snapshot_that_lost_a_file_is_asked_for_again(room: Room) -> None:
    snapshot = _snapshot(room, b"a", b"b")
    room.blobs.path(room.blobs.put_bytes(b"b")).unlink()
    with pytest.raises(TorchyardError, match="no longer whole"):
        rooms.submit(room, code=f"snapshot:{snapshot}")


def test_submissions_beside_removals(room: Room) -> None:
    """Whoever got a job has its code, whenever the removal comes."""
    snapshots = [_snapshot(room, b"%d" % number, b"shared") for number in range(40)]
    _age_blobs(room.blobs)
    stop = threading.Event()
    failures: list[BaseException] = []

    def clean() -> None:
        while not stop.is_set():
            try:
                reclaiming.reclaim(room, Wishes(older_than_s=0))
            except BaseException as error:
                failures.append(error)
                return

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    kept = []
    try:
        for snapshot in snapshots:
            try:
                rooms.submit(room, code=f"snapshot:{snapshot}")
            except TorchyardError:
                continue  # removed before: the client uploads it again
            kept.append(snapshot)
    finally:
        stop.set()
        cleaner.join(30)
    assert not failures
    reclaiming.reclaim(room, Wishes(older_than_s=0))
    for snapshot in kept:
        assert room.blobs.missing(room.blobs.parts(snapshot)) == []


def test_environments_of_open_jobs_stay(room: Room, tmp_path: Path) -> None:
    running = rooms.submit(room)
    with room.db.read() as connection:
        needed = connection.execute(store.jobs.select()).one().environment_hash
    for name in (needed, "a" * 64, "b" * 64):
        folder = tmp_path / "environments" / name
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * 1000)
        _age(folder, 3 * DAY_S if name.startswith("b") else _OLD_S)
    things = {thing.name: thing for thing in reclaiming.survey(room, Wishes())}
    assert (things[needed].goes, things[needed].why) == (False, f"job `{running.name}` needs it")
    assert things["a" * 64].goes and not things["b" * 64].goes
    reclaiming.reclaim(room, Wishes(budget_bytes=1000))
    assert [hash for hash, _ in room.environments.folders()] == [needed]
    _end(room, running)
    reclaiming.reclaim(room, Wishes())
    assert list(room.environments.folders()) == []


def test_inputs_that_a_job_may_read_stay(room: Room, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "data"
    since = _snapshot(room, b"x")
    job = rooms.submit(
        room,
        inputs={"data": {"type": "uri_folder", "path": f"snapshot:{since}"}},
        command="ls ${{inputs.data}}",
    )
    long_ago = room.clock.now() - timedelta(days=30)
    with room.db.write() as connection:
        store.change_job(connection, job.id, created_at=long_ago)
    for name, days in (("a" * 32, 29), ("b" * 32, 31)):
        (cache / name).mkdir(parents=True)
        (cache / name / "file").write_bytes(b"x")
        (cache / name).chmod(0o755)
        _age(cache / name, days * DAY_S)
    reclaiming.reclaim(room, Wishes())
    assert [name for name, _ in room.fetcher.copies()] == ["a" * 32]


def test_scratch_and_logs(room: Room, tmp_path: Path) -> None:
    first, second = rooms.submit(room), rooms.submit(room)
    for job in (first, second):
        room.logs.append(job.workspace, job.name, 1, "user_logs/std_log.txt", 0, b"x" * 100)
        _end(room, job)
    for name in ("gone", "new"):
        (tmp_path / "scratch" / name / "node-0").mkdir(parents=True)
    _age(tmp_path / "scratch" / "gone")
    reclaiming.reclaim(room, Wishes())
    assert [folder.name for folder in (tmp_path / "scratch").iterdir()] == ["new"]
    assert list(room.logs.list(first.workspace, first.name))
    reclaiming.reclaim(room, Wishes(logs_bytes=150))
    assert not list(room.logs.list(first.workspace, first.name))
    assert list(room.logs.list(second.workspace, second.name))


def test_one_at_a_time_and_nothing_on_a_survey(room: Room) -> None:
    _snapshot(room, b"a")
    _age_blobs(room.blobs)
    assert [thing.goes for thing in reclaiming.survey(room, Wishes())] == [True]
    assert len(list(room.blobs.all())) == 2
    with reclaiming._alone(room.home), pytest.raises(Conflict):
        reclaiming.reclaim(room, Wishes())
