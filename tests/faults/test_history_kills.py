"""Server and database killed while clients write, in the bounded form; see history_kills.py."""

from __future__ import annotations

import pytest

import postgres_server
from faults import history_kills

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]

# Fixed; other seeds are for the long runs by hand.
SEED = 7


@pytest.mark.parametrize(("database", "kills"), [("sqlite", 3), ("postgres", 5)])
def test_what_was_acknowledged_is_there_once(database: str, kills: int) -> None:
    if database == "postgres":
        postgres_server.need()
    seed = SEED
    print(f"\nseed {seed}")
    counts = history_kills.run(kills, seed, database, pause_s=1.5)
    print(history_kills.report(counts))
    assert counts.kills.total() == kills and counts.points and counts.again
    assert not counts.wrong, f"seed {seed}\n{history_kills.report(counts)}"
