"""What a node keeps: once, within its budget, and never from under a worker."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from torchyard.worker.files import node_cache
from torchyard.worker.files.node_cache import NodeCache, Stopped


def _make(size: int) -> Callable[[Path], None]:
    def make(draft: Path) -> None:
        draft.mkdir(exist_ok=True)
        (draft / "content").write_bytes(b"x" * size)
        (draft / "content").chmod(0o444)
        draft.chmod(0o555)

    return make


def _bring(cache: NodeCache, key: str, size: int = 100) -> Path:
    return cache.tree("environments", key, lambda: size, _make(size), lambda: False)


def _in_child(cache: NodeCache, key: str, size: int = 100) -> None:
    """As a worker that ends afterwards, and with it its use."""
    child = os.fork()
    if child == 0:
        try:
            _bring(cache, key, size)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def test_many_who_ask_at_once_fetch_once(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(draft: Path) -> None:
        made.append(draft)
        draft.mkdir()

    caches = [NodeCache(tmp_path, 1000) for _ in range(8)]
    threads = [
        threading.Thread(target=cache.tree, args=("inputs", "k", lambda: 1, make, lambda: False))
        for cache in caches
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 250)
    for age, key in enumerate(("old", "older", "oldest")):
        _in_child(cache, key, 80)
        at = 1_000_000 - age
        os.utime(tmp_path / "environments" / ".sizes" / key, (at, at))
    _in_child(cache, "older", 80)  # used again
    _in_child(cache, "new", 80)
    left = {path.name for path in (tmp_path / "environments").glob("[a-z]*")}
    assert left == {"old", "older", "new"}


def test_what_a_worker_uses_stays(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 100)
    used = _bring(cache, "used")
    _in_child(cache, "other")
    _in_child(cache, "third")
    assert used.exists()
    assert not (tmp_path / "environments" / "other").exists()


def test_blobs_count_in_the_budget(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 150)

    def fetch(file: Path) -> None:
        file.write_bytes(b"x" * 100)

    blob = cache.blob("ab" * 32, fetch, lambda: False)
    os.utime(blob, (1, 1))
    _in_child(cache, "environment")
    assert not blob.exists()


def test_a_fetch_that_fails_leaves_it_to_the_next(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 1000)

    def fail(draft: Path) -> None:
        draft.mkdir()
        raise OSError("cut off")

    with pytest.raises(OSError, match="cut off"):
        cache.tree("environments", "k", lambda: 1, fail, lambda: False)
    assert not (tmp_path / "environments" / "k").exists()
    assert _bring(cache, "k").exists()


def test_a_stopped_job_does_not_wait_for_another_that_fetches(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 1000)
    with pytest.raises(Stopped):
        cache.tree("environments", "k", lambda: 1, _make(1), lambda: True)


@pytest.mark.parametrize(
    ("text", "gigabytes"), [("", 20), ("5", 5), ("0.5", 0.5), ("0", 0), ("x", 20), ("nan", 20),
                            ("-1", 20), ("inf", 20)],
)  # fmt: skip
def test_the_budget_is_the_owners(text: str, gigabytes: float) -> None:
    assert node_cache.budget_bytes({"TORCHYARD_NODE_CACHE_GB": text}) == int(gigabytes * 1e9)
