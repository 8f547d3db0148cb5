"""Lists and searches as the runs grow tenfold.

    python benchmarks/many_runs.py [--runs 100000] [--rounds 9] [--database postgresql://…/empty]

Asks a `yard-server` in plain HTTP for the first page, over a tenth of the runs and then over all of
them: a filter finds the same share of the runs in both, but those called rare, which find five
runs in either. MLflow's server stands beside ours over 10,000 runs in benchmarks/history.py.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from figures import YARD, clean_variables, progress, remove
from scheduling import empty
from sqlalchemy import insert

from torchyard.app import application as apps
from torchyard.base.db import Database
from torchyard.jobs.history import history_store
from torchyard.jobs.records import names, store, tag_store, text_index
from torchyard.jobs.requests import runs
from torchyard.workspaces import people

_ROWS = 500
_RARE = 5
_MLFLOW = "/api/2.0/mlflow/runs/search"
_AZURE = (
    "/history/v1.0/subscriptions/local/resourceGroups/torchyard/providers"
    "/Microsoft.MachineLearningServices/workspaces/default/experiments/many/runs:query"
)
Ask = Callable[[str, str, Any], Any]


def fill(home: Path, database: str, count: int) -> tuple[str, int, datetime]:
    """A home with that many runs, each with a metric, a parameter and tags.

    Returns its token, the experiment, and since when five runs were submitted.
    """
    parts = apps.build(home, "http://127.0.0.1:1", {}, database=database)
    services = parts.services
    experiment = runs.create_experiment(services, "default", "many", {})
    now = services.clock.now()
    with services.db.write() as connection:
        token = people.home_token(connection, "me", now)
        for start in range(1, count + 1, _ROWS):
            numbers = range(start, min(start + _ROWS, count + 1))
            connection.execute(
                insert(store.jobs),
                [
                    {
                        **{"id": number, "workspace": "default", "name": names.generate()},
                        **{"type": "run", "experiment_id": experiment.id, "spec": {}},
                        **_filtered_fields(number, count),
                        **{"spec_hash": "", "environment_hash": "", "compute": ""},
                        **{"node_count": 0, "processes_per_node": 0, "parent": "", "attempt": 0},
                        **{"created_at": now + timedelta(seconds=number)},
                        **{"started_at": now + timedelta(seconds=number), "ended_at": now},
                        **{"tags": _tags(number, count), "properties": {}},
                        **{"deleted": False, "archived": False, "description": ""},
                    }
                    for number in numbers
                ],
            )
            tag_store.add(connection, {number: _tags(number, count) for number in numbers})
            params = [_param(number, count) for number in numbers]
            connection.execute(insert(history_store.params), params)
            connection.execute(insert(history_store.metrics), [_metric(n, count) for n in numbers])
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT setval('jobs_id_seq', (SELECT max(id) FROM jobs))")
            # As its autovacuum does within a minute of so many new rows.
            connection.exec_driver_sql("ANALYZE")
    _index(services.db)
    parts.scheduler.preparer.close()
    services.db.close()
    return token, experiment.id, now + timedelta(seconds=count - _RARE + 1)


def _index(db: Database) -> None:
    """As the server's scheduler does within seconds of so many new runs; PostgreSQL, minutes."""
    minutes = itertools.count()
    index = text_index.TextIndex(db, lambda: next(minutes) * 60.0)
    index.is_due()
    while index.is_due():
        index.extend()


def _is_rare(number: int, count: int) -> bool:
    return number % (count // _RARE) == 0


def _filtered_fields(number: int, count: int) -> dict[str, Any]:
    if _is_rare(number, count):
        return {"owner": "ada", "display_name": f"odd {number}", "status": "Failed"}
    return {"owner": "me", "display_name": f"run {number}", "status": "Completed"}


def _tags(number: int, count: int) -> dict[str, str]:
    team = "rare" if _is_rare(number, count) else f"team{number % 7}"
    return {"team": team, "digit": str(number % 10)}


def _param(number: int, count: int) -> dict[str, Any]:
    return {
        **{"job_id": number, "key": "lr"},
        "value": "77" if _is_rare(number, count) else str(number % 10),
    }


def _metric(number: int, count: int) -> dict[str, Any]:
    score = -2.0 if _is_rare(number, count) else (number * 7919 % count) / count
    return {
        **{"job_id": number, "key": "score", "points": 1, "blocks": 0, "tail": b"\0" * 24},
        **{"latest_step": 0, "latest_timestamp": 0, "latest_value": score},
        **{"max_step": 0, "max_timestamp": 0},
    }


def rare_cases(experiment: int, since: datetime) -> dict[str, tuple[str, str, Any]]:
    """What five runs fit; the last of the searches none."""

    def search(filter: str) -> tuple[str, str, Any]:
        body = {"experiment_ids": [str(experiment)], "max_results": 100, "filter": filter}
        return "POST", _MLFLOW, body

    jobs = "/v1/workspaces/default/jobs?limit=50"
    start_ms = int(since.timestamp() * 1000)
    return {
        "rare, by a parameter": search("params.lr = '77'"),
        "rare, by the start of a parameter": search("params.lr LIKE '77%'"),
        "rare, by a metric": search("metrics.score < -1"),
        "rare, by a tag": search("tags.team = 'rare'"),
        "rare, by owner": search("attributes.user_id = 'ada'"),
        "rare, by status": search("attributes.status = 'FAILED'"),
        "rare, by time": search(f"attributes.start_time >= {start_ms}"),
        "rare, by the start of a name": search("attributes.run_name LIKE 'odd%'"),
        "rare, by a part of a name": search("attributes.run_name LIKE '%odd%'"),
        "rare, by two common values": search("params.lr = '3' and tags.digit = '4'"),
        "rare, history of Azure ML, by a tag": (
            "POST",
            _AZURE,
            {"top": 100, "filter": "tags/team eq rare"},
        ),
        "rare, yard job list, by a tag": ("GET", f"{jobs}&tag=team%3Drare", None),
        "rare, yard job list, by tag, sorted": (
            "GET",
            f"{jobs}&tag=team%3Drare&sort=metrics.score",
            None,
        ),
        "rare, yard job list, by owner": ("GET", f"{jobs}&owner=ada", None),
        "rare, yard job list, by status": ("GET", f"{jobs}&status=Failed", None),
        "rare, yard job list, by time": (
            "GET",
            f"{jobs}&created_after={since:%Y-%m-%dT%H:%M:%SZ}",
            None,
        ),
        "rare, yard job list, by text": ("GET", f"{jobs}&text=odd", None),
    }


def cases(experiment: int) -> dict[str, tuple[str, str, Any]]:
    def search(**more: Any) -> tuple[str, str, Any]:
        return "POST", _MLFLOW, {"experiment_ids": [str(experiment)], "max_results": 100, **more}

    jobs = "/v1/workspaces/default/jobs?limit=50"
    return {
        "search, newest": search(),
        "search, by metric and tag": search(filter="metrics.score > 0.5 and tags.team = 'team3'"),
        "search, by parameter": search(filter="params.lr = '3'"),
        "search, ordered by a metric": search(order_by=["metrics.score DESC"]),
        "search, ordered by a name": search(order_by=["attributes.run_name ASC"]),
        "history of Azure ML": ("POST", _AZURE, {"top": 100}),
        "yard job list": ("GET", jobs, None),
        "yard job list, of one experiment": ("GET", f"{jobs}&experiment_name=many", None),
        "yard job list, by a metric": ("GET", f"{jobs}&sort=metrics.score&column=metrics", None),
        "yard job list, by a metric and tag": (
            "GET",
            f"{jobs}&sort=metrics.score&descending=true&tag=team%3Dteam3",
            None,
        ),
        "yard job list, by a parameter": ("GET", f"{jobs}&sort=params.lr&column=params", None),
        "yard job list, by text": ("GET", f"{jobs}&text=9999", None),
    }


def measured(count: int, database: str, rounds: int) -> dict[str, float]:
    """By case, the median in milliseconds."""
    folder = Path(tempfile.mkdtemp(prefix="torchyard-many-runs-"))
    home = folder / "home"
    if database:
        empty(database)
    progress(f"{count} runs are written")
    variables = clean_variables(TORCHYARD_HOME=str(home))
    try:
        token, experiment, since = fill(home, database, count)
        subprocess.run([YARD, "server", "start"], env=variables, check=True, capture_output=True)
        url = json.loads((home / "server.json").read_text())["url"]
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        figures = {}
        for name, (method, path, body) in [
            *cases(experiment).items(),
            *rare_cases(experiment, since).items(),
        ]:
            progress(f"{count} runs: {name}")
            spans = []
            for _ in range(rounds + 1):
                begun = time.monotonic()
                connection.request(method, path, body and json.dumps(body), headers)
                answer = connection.getresponse()
                content = answer.read()
                spans.append((time.monotonic() - begun) * 1000)
                assert answer.status == 200, content[:500]
            figures[name] = statistics.median(spans[1:])
        return figures
    finally:
        subprocess.run([YARD, "server", "stop"], env=variables, check=False, capture_output=True)
        remove(folder)
        progress("")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--database", default="", help="of PostgreSQL; its content is replaced")
    arguments = parser.parse_args()
    few, many = arguments.runs // 10, arguments.runs
    small = measured(few, arguments.database, arguments.rounds)
    large = measured(many, arguments.database, arguments.rounds)
    print(f"\nthe first page, median ms of {arguments.rounds}")
    print(f"  {'runs':36}{few:>10}{many:>10}{'growth':>9}")
    for name, value in small.items():
        print(f"  {name:36}{value:10.1f}{large[name]:10.1f}{large[name] / value:8.1f}x")


if __name__ == "__main__":
    main()
