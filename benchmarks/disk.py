"""How long `yard disk` takes over a home of many jobs, and what it costs others meanwhile.

    python benchmarks/disk.py [--jobs 10000] [--rounds 5] [--database postgresql://…/empty]

Each job has four logs, three files of `./outputs` and a named output. While the home is measured,
`/health` is asked every 10 ms, and a metric is written by a second client every 20 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from figures import YARD, Case, clean_variables, compare, progress, remove
from scheduling import empty
from sqlalchemy import insert

from torchyard.app import application as apps
from torchyard.data.datastores import ARTIFACT_STORE, BLOB_STORE, artifacts_of, output_of
from torchyard.jobs.files import artifacts
from torchyard.jobs.records import names, store
from torchyard.jobs.requests import runs
from torchyard.jobs.services import Services
from torchyard.workspaces import people

_ROWS = 500
_LOGS = (
    *("user_logs/std_log.txt", "user_logs/std_log_process_0.txt"),
    *("user_logs/std_log_process_1.txt", "logs/events.txt"),
)
_OUTPUTS = ("outputs/model.pt", "outputs/checkpoints/last.pt", "outputs/metrics.json")
_HEALTH_PAUSE_S, _METRIC_PAUSE_S = 0.01, 0.02


def fill(home: Path, database: str, count: int) -> str:
    """A home with that many jobs that ended, and the token of its owner.

    The first job's files are written by the server's own code; the others' are copies of them.
    """
    parts = apps.build(home, "http://127.0.0.1:1", {}, database=database)
    services = parts.services
    experiment = runs.create_experiment(services, "default", "disk", {})
    now = services.clock.now()
    job_names = [names.generate() for _ in range(count)]
    with services.db.write() as connection:
        token = people.home_token(connection, "me", now)
        for start in range(0, count, _ROWS):
            rows = [
                {
                    **{"id": start + offset + 1, "workspace": "default", "name": name},
                    **{"type": "run", "experiment_id": experiment.id, "status": "Completed"},
                    **{"owner": f"person{offset % 7}", "display_name": name, "spec": {}},
                    **{"spec_hash": "", "environment_hash": "", "compute": ""},
                    **{"node_count": 0, "processes_per_node": 0, "parent": "", "attempt": 0},
                    **{"created_at": now, "started_at": now, "ended_at": now},
                    **{"tags": {}, "properties": {}},
                    **{"deleted": False, "archived": False, "description": ""},
                }
                for offset, name in enumerate(job_names[start : start + _ROWS])
            ]
            connection.execute(insert(store.jobs), rows)
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT setval('jobs_id_seq', (SELECT max(id) FROM jobs))")
            connection.exec_driver_sql("ANALYZE")
    _write_files(services, job_names)
    parts.scheduler.preparer.close()
    services.db.close()
    return token


def _write_files(services: Services, job_names: list[str]) -> None:
    with services.db.read() as connection:
        job = store.job_named(connection, "default", job_names[0])
    assert job is not None
    for path in _LOGS:
        services.logs.append("default", job.name, 1, path, 0, b"epoch 1: loss 0.25\n" * 50)
    for path in _OUTPUTS:
        with artifacts.writing(services.datastores, job, path) as writing:
            writing.write(b"w" * 4096)
    output = f"{output_of(job.name, 'best')}/weights.bin"
    with services.datastores.writing("default", BLOB_STORE, output) as writing:
        writing.write(b"b" * 4096)
    artifact_root = services.datastores.root("default", ARTIFACT_STORE)
    output_root = services.datastores.root("default", BLOB_STORE)
    tops: list[Callable[[str], Path]] = [
        partial(services.logs.folder, "default"),
        lambda name: artifact_root / artifacts_of(name),
        lambda name: output_root / output_of(name, "best"),
    ]
    for number, name in enumerate(job_names[1:]):
        if number % 100 == 0:
            progress(f"files of {number} jobs are written")
        for top in tops:
            shutil.copytree(top(job.name), top(name))
    progress("")


def ask(url: str, token: str, path: str, body: Any = None) -> float:
    """Seconds until the whole answer is there."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=600)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    begun = time.monotonic()
    connection.request("POST" if body else "GET", path, body and json.dumps(body), headers)
    answer = connection.getresponse()
    content = answer.read()
    taken_s = time.monotonic() - begun
    connection.close()
    assert answer.status == 200, content[:500]
    return taken_s


@contextlib.contextmanager
def watched(ask_once: Callable[[], float], pause_s: float) -> Iterator[list[float]]:
    """Seconds of each answer, asked again and again until the block ends."""
    answers: list[float] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(pause_s):
            answers.append(ask_once())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()


def measure_disk(url: str, token: str, write: Callable[[], float]) -> dict[str, float]:
    health = partial(ask, url, token, "/health")
    with watched(health, _HEALTH_PAUSE_S) as answers, watched(write, _METRIC_PAUSE_S) as writes:
        wall_s = ask(url, token, "/v1/disk")
    return {
        "wall_s": wall_s,
        "health_median_ms": statistics.median(answers) * 1000,
        "health_worst_ms": max(answers) * 1000,
        "metric_worst_ms": max(writes) * 1000,
    }


def measure_idle(url: str, token: str, write: Callable[[], float]) -> dict[str, float]:
    """The same two clients while nothing is measured."""
    health = partial(ask, url, token, "/health")
    with watched(health, _HEALTH_PAUSE_S) as answers, watched(write, _METRIC_PAUSE_S) as writes:
        time.sleep(3)
    return {
        "health_median_ms": statistics.median(answers) * 1000,
        "health_worst_ms": max(answers) * 1000,
        "metric_worst_ms": max(writes) * 1000,
    }


def measure_du(home: Path) -> dict[str, float]:
    begun = time.monotonic()
    subprocess.run(["du", "-s", home], check=True, capture_output=True)
    return {"wall_s": time.monotonic() - begun}


def metric_writer(url: str, token: str) -> Callable[[], float]:
    """One call writes one metric of a new run, by MLflow's interface."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    path, body = "/api/2.0/mlflow/runs/create", {"experiment_name": "disk", "experiment_id": "1"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    assert answer.status == 200, content[:500]
    run_id = json.loads(content)["run"]["info"]["run_id"]
    metric = {"run_id": run_id, "key": "loss", "value": 0.5, "timestamp": 1, "step": 1}
    return partial(ask, url, token, "/api/2.0/mlflow/runs/log-metric", metric)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--database", default="", help="of PostgreSQL; its content is replaced")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torchyard-disk-"))
    home = folder / "home"
    if arguments.database:
        empty(arguments.database)
    variables = clean_variables(TORCHYARD_HOME=str(home))
    try:
        token = fill(home, arguments.database, arguments.jobs)
        files = sum(len(names) for _, _, names in os.walk(home))
        subprocess.run([YARD, "server", "start"], env=variables, check=True, capture_output=True)
        url = json.loads((home / "server.json").read_text())["url"]
        write = metric_writer(url, token)
        cases = [
            Case("yard disk", partial(measure_disk, url, token, write)),
            Case("du -s", partial(measure_du, home)),
            Case("no one asks", partial(measure_idle, url, token, write)),
        ]
        compare(f"{arguments.jobs} jobs, {files} files", cases, arguments.rounds)
    finally:
        subprocess.run([YARD, "server", "stop"], env=variables, check=False, capture_output=True)
        remove(folder)
        progress("")


if __name__ == "__main__":
    main()
