"""A job swaps files for links while the server reads and writes: nothing leads out.

The short form asks each route 6 times. The long one, of ten minutes with four threads:

    TORCHYARD_SWAP_MINUTES=10 .venv/bin/pytest -s -m fuzz tests/fuzz/test_swaps.py

`TORCHYARD_SWAP_SEED` draws other requests, `TORCHYARD_SWAP_THREADS` sets the number of threads. It
prints the seed, how often each route was asked, and how often names were exchanged.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest

from attacks.paths import tree
from fuzz.swaps import REQUESTS, SECRET, attack, site, stored_with, swapping
from torchyard.shared import beneath

SEED = int(os.environ.get("TORCHYARD_SWAP_SEED") or 20_261_128)
MINUTES = float(os.environ.get("TORCHYARD_SWAP_MINUTES") or 0)
THREADS = int(os.environ.get("TORCHYARD_SWAP_THREADS") or 4)
_EACH = 6


def _run(top: Path, count: int, seconds: float) -> Counter[str]:
    with site(top) as under_attack:
        before = tree(top / "outside", but=top / "nowhere")
        with swapping(under_attack) as exchanges:
            until_s = time.monotonic() + seconds if seconds else 0.0
            counted, done, wrong = attack(under_attack, SEED, THREADS, count, until_s)
            print(f"\nseed {SEED}, {THREADS} threads, {exchanges()} exchanges, {len(wrong)} wrong")
        for route, number in sorted(counted.items()):
            print(f"{number:8} {done[route]:8} done  {route}")
        assert not wrong, wrong[:5]
        assert tree(top / "outside", but=top / "nowhere") == before
        # Nothing of it was kept either: as a blob, a model, a copy of an input, a log.
        assert stored_with(top / "home", SECRET) == []
        assert stored_with(top / "nas", SECRET) == []
    return counted


@pytest.mark.parametrize("way", ["openat2", "parts"])
def test_swapped_names_lead_nowhere(tmp_path: Path, way: str) -> None:
    with beneath.without_openat2() if way == "parts" else nullcontext():
        counted = _run(tmp_path, _EACH * len(REQUESTS), 0)
    assert min(counted.values()) >= _EACH and sum(counted.values()) == _EACH * len(REQUESTS)


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.timeout(0)
@pytest.mark.skipif(not MINUTES, reason="set TORCHYARD_SWAP_MINUTES to attack for so long")
def test_swapped_names_lead_nowhere_for_long(tmp_path: Path) -> None:
    counted = _run(tmp_path, 0, MINUTES * 60)
    assert len(counted) == len({f"{method} {target}" for method, target, _ in REQUESTS})
