"""What it costs to know who asks: a token's look-up as it was without roles, and with them.

Run: python benchmarks/access.py
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from fastapi import Request
from sqlalchemy import bindparam, select

import torchyard.app.application  # noqa: F401  (the tables of every package)
from torchyard.base.clock import SystemClock
from torchyard.base.db import Database
from torchyard.workspaces import actions, audit, lookups, people
from torchyard.workspaces.access import Access
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.store import tokens

ROUNDS, CALLS, PEOPLE = 15, 300, 200
METRIC = "/mlflow/default/api/2.0/mlflow/runs/log-metric"


def microseconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        act()
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        db, clock = Database(f"sqlite:///{folder}/torchyard.db"), SystemClock()
        db.upgrade()
        actions.ensure_default(db, clock)
        with db.write() as connection:
            token = people.home_token(connection, "olga", clock.now())
            for number in range(PEOPLE):
                people.home_token(connection, f"person{number}", clock.now())
        by_hash = select(tokens).where(tokens.c.hash == bindparam("of"))

        def before() -> None:
            of = hashlib.sha256(token.encode()).hexdigest()
            with db.read() as connection:
                connection.execute(by_hash, {"of": of}).one()

        known_tokens = lookups.Lookups()
        access = Access(db, clock)
        request = Request(
            {
                "type": "http",
                "method": "POST",
                "path": METRIC,
                "headers": [(b"authorization", f"Bearer {token}".encode())],
                "path_params": {"workspace": "default"},
                "client": ("127.0.0.1", 1),
            }
        )
        lines = audit.Audit(Path(folder), clock)
        line = {"user": "olga", "method": "POST", "path": METRIC, "status": 200}
        acts: dict[str, Callable[[], object]] = {
            "token alone, as before": before,
            "token and role": lambda: actions.authenticate(db, clock, token, "default"),
            "the same within a second": lambda: actions.authenticate(
                db, clock, token, "default", known_tokens
            ),
            "what a route enforces": lambda: access.enforce(request, Permission.LOG),
            "a line of the audit": lambda: lines.write(line),
        }
        times_of: dict[str, list[float]] = {name: [] for name in acts}
        for _ in range(ROUNDS):
            for name, act in acts.items():
                times_of[name].append(microseconds(act))
        for name, times in times_of.items():
            print(f"{name:<24} {median(times):8.1f} µs (best {min(times):.1f})")
        lines.close()
        db.close()


if __name__ == "__main__":
    main()
