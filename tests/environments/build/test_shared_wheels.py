"""Wheels that builds share: a build adds to the store and changes nothing in it."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from environments import wheels
from torchyard.environments.build import shared_wheels

ONE_DATABASE = True


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    store.mkdir()
    return store


def digest_of(wheel: Path) -> str:
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def lines(wheel: Path) -> dict[str, str]:
    return {"alpha": f"alpha==1.0 \\\n    --hash=sha256:{digest_of(wheel)}\n"}


def test_a_wheel_is_under_its_hash_and_cannot_be_written(store: Path, tmp_path: Path) -> None:
    wheel = wheels.put(tmp_path / "fetched", "alpha", "1.0")
    assert shared_wheels.add(store, tmp_path / "fetched") == 1
    assert shared_wheels.add(store, tmp_path / "fetched") == 0
    [stored] = store.glob("*/*")
    assert (stored.parent.name, stored.name) == (digest_of(wheel), wheel.name)
    assert stat.S_IMODE(stored.stat().st_mode) == 0o444
    assert sorted(path.name for path in store.iterdir()) == [digest_of(wheel)]


def test_a_wheel_of_the_same_name_takes_no_ones_place(store: Path, tmp_path: Path) -> None:
    good = wheels.put(tmp_path / "good", "alpha", "1.0")
    bad = wheels.put(tmp_path / "bad", "alpha", "1.0", text="import evil\n")
    for folder in (bad.parent, good.parent):
        assert shared_wheels.add(store, folder) == 1
    for wheel in (good, bad):
        target = tmp_path / f"for-{digest_of(wheel)[:8]}"
        assert shared_wheels.lay_out(store, lines(wheel), target) == {"alpha"}
        assert (target / wheel.name).read_bytes() == wheel.read_bytes()


def test_what_is_no_wheel_is_not_taken(store: Path, tmp_path: Path) -> None:
    fetched, name = tmp_path / "fetched", "alpha-1.0-py3-none-any.whl"
    fetched.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("token")
    (fetched / name).symlink_to(secret)
    os.mkfifo(fetched / "beta-1.0-py3-none-any.whl")
    (fetched / "gamma-1.0-py3-none-any.whl").mkdir()
    (fetched / "delta.tar.gz").write_text("source")
    (fetched / "nothing.whl").write_text("")
    assert shared_wheels.add(store, fetched) == 0
    assert list(store.iterdir()) == []
    assert shared_wheels.add(store, tmp_path / "absent") == 0
    (tmp_path / "link").symlink_to(wheels.put(tmp_path / "good", "alpha", "1.0").parent)
    assert shared_wheels.add(store, tmp_path / "link") == 0


def test_a_hash_that_the_store_lacks_lays_nothing_out(store: Path, tmp_path: Path) -> None:
    shared_wheels.add(store, wheels.put(tmp_path / "one", "alpha", "1.0").parent)
    other = wheels.put(tmp_path / "two", "alpha", "1.0", text="# another\n")
    assert shared_wheels.lay_out(store, lines(other), tmp_path / "target") == set()
    assert not (tmp_path / "target").exists()
