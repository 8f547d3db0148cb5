"""How the web page feels: first paint, a chart of 1,000,000 points, a log of 1,000,000 lines.

    .venv/bin/python benchmarks/web_page_browser.py [--points 1000000] [--lines 1000000]
                                                   [--mlflow-python PYTHON]

A server and Chromium on this machine; needs `make chromium` and the group `ui`. Each figure is
the median of `--rounds`; all of them wait for the processor, so the machine's load is printed. The
page's own files are in the browser's cache after the first visit, as for anyone who comes back.
Beside it MLflow's own page, with as many points of one metric; it shows no log.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from server import mlflow_server  # noqa: E402

from end_to_end.yard_under_test import Yard, remove, running_yard  # noqa: E402

# Root has no sandbox, and containers little shared memory.
CHROMIUM = ["--no-sandbox", "--disable-dev-shm-usage"]
WORKSPACE = "/ui/workspaces/default"
ASSETS = ROOT / "src/torchyard/web/assets"

SCRIPT = """
import json, os, sys, time, urllib.request
points, lines = int(sys.argv[1]), int(sys.argv[2])
for n in range(lines):
    print(f"line {n}: loss {1 / (n + 1):.6f} in {n % 97} ms")
now = int(time.time() * 1000)
for start in range(0, points, 1000):
    metrics = [
        {"key": "loss", "value": 1 / (n + 1), "timestamp": now + n, "step": n}
        for n in range(start, min(points, start + 1000))
    ]
    body = json.dumps({"run_id": os.environ["MLFLOW_RUN_ID"], "metrics": metrics}).encode()
    headers = {"Content-Type": "application/json"}
    headers["Authorization"] = "Bearer " + os.environ.get("MLFLOW_TRACKING_TOKEN", "")
    address = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-batch"
    urllib.request.urlopen(urllib.request.Request(address, body, headers)).close()
"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
# Scrolls for three seconds, and gives the times between frames in ms.
SCROLL = """async () => {
    const log = document.querySelector('.log-frame');
    const gaps = [];
    let last = performance.now();
    const end = last + 3000;
    while (last < end) {
        log.scrollTop += 4000;
        const now = await new Promise(requestAnimationFrame);
        gaps.push(now - last);
        last = now;
    }
    return gaps;
}"""


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mlflow-python", default="")
    options = parser.parse_args()
    program = shutil.which("chromium")
    folder = Path(tempfile.mkdtemp(prefix="torchyard-page-bench-"))
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=CHROMIUM)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(300_000)
            for name, value in of_torchyard(page, folder, options).items():
                print(f"{name:<44} {value}")
            if options.mlflow_python:
                for name, value in of_mlflow(page, folder, options).items():
                    print(f"{'MLflow: ' + name:<44} {value}")
            print(f"{'load of the machine over the last minute':<44} {os.getloadavg()[0]:.1f}")
            browser.close()
    finally:
        remove(folder)
    files = json.loads((ASSETS / "manifest.json").read_text())["files"]
    size = sum(entry["gzip_bytes"] for name, entry in files.items() if name.endswith(".js"))
    print(f"{'JavaScript of all pages, compressed':<44} {size / 1000:.1f} kB")


def of_torchyard(page: Any, folder: Path, options: argparse.Namespace) -> dict[str, str]:
    with running_yard("page-bench") as yard:
        logged(yard, folder, options.points, options.lines)
        page.goto(yard("ui", "--no-open").strip())
        page.get_by_role("navigation", name="Sections").wait_for()
        home = json.loads((yard.home / "server.json").read_text())["url"] + WORKSPACE
        return figures(page, home, options)


def of_mlflow(page: Any, folder: Path, options: argparse.Namespace) -> dict[str, str]:
    with mlflow_server(options.mlflow_python, folder) as (url, _, _):
        run = logged_in_mlflow(url, folder / "mlflow.db", options.points)
        paints, lists, charts = [], [], []
        # The first visit fills the browser's cache.
        for _ in range(options.rounds + 1):
            page.goto("about:blank")
            page.goto(f"{url}/#/experiments/0/runs")
            page.get_by_role("link", name="big").first.wait_for()
            lists.append(page.evaluate("performance.now()"))
            paints.append(page.evaluate(PAINT))
            page.goto(f"{url}/#/experiments/0/runs/{run}")
            tab = page.get_by_role("tab", name="Model metrics")
            tab.wait_for()
            start = time.perf_counter()
            tab.click()
            page.locator(".js-plotly-plot .main-svg").first.wait_for()
            charts.append((time.perf_counter() - start) * 1000)
    return {
        "first paint of the list": f"{statistics.median(paints[1:]):.0f} ms",
        "the list, with its rows": f"{statistics.median(lists[1:]):.0f} ms",
        "a click, then the chart of the metric": f"{statistics.median(charts[1:]):.0f} ms",
    }


def logged_in_mlflow(url: str, database: Path, points: int) -> str:
    """The run; its points are written into the database, which takes MLflow itself very long."""

    def ask(path: str, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        address = f"{url}/api/2.0/mlflow/runs/{path}"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    run = str(ask("create", {"experiment_id": "0", "run_name": "big"})["run"]["info"]["run_id"])
    now = int(time.time() * 1000)
    first = {"key": "loss", "value": 1.0, "timestamp": now, "step": 0}
    ask("log-batch", {"run_id": run, "metrics": [first]})
    connection = sqlite3.connect(database, timeout=60)
    with connection:
        connection.executemany(
            "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) "
            "VALUES ('loss', ?, ?, ?, ?, 0)",
            ((1 / (n + 1), now + n, run, n) for n in range(1, points)),
        )
        connection.execute(
            "UPDATE latest_metrics SET value = ?, timestamp = ?, step = ? WHERE run_uuid = ?",
            (1 / points, now + points - 1, points - 1, run),
        )
    connection.close()
    return run


def logged(yard: Yard, folder: Path, points: int, lines: int) -> None:
    (folder / "log.py").write_text(SCRIPT)
    file = folder / "job.yml"
    document = {"name": "big", "environment": "python", "code": str(folder)}
    file.write_text(json.dumps({**document, "command": f"python log.py {points} {lines}"}))
    yard("job", "create", "-f", str(file))
    yard.completed("big", timeout_s=1800)


def figures(page: Any, home: str, options: argparse.Namespace) -> dict[str, str]:
    paints, jobs, charts = [], [], []
    for _ in range(options.rounds):
        page.goto(f"{home}/jobs")
        page.locator(".job-link").first.wait_for()
        jobs.append(page.evaluate("performance.now()"))
        paints.append(page.evaluate(PAINT))
        page.goto(f"{home}/jobs/big")
        page.get_by_role("tab", name="Metrics").wait_for()
        start = time.perf_counter()
        page.get_by_role("tab", name="Metrics").click()
        page.locator("[role=tabpanel] .legend-value").first.wait_for()
        charts.append((time.perf_counter() - start) * 1000)
        assert shown_number(page, ".metric-foot") == options.points
    page.goto(f"{home}/jobs/big?tab=logs")
    page.locator(".log-line").first.wait_for()
    assert shown_number(page, ".log-count") == options.lines
    gaps = page.evaluate(SCROLL)
    slow = [gap for gap in gaps if gap > 50]
    return {
        "first paint of the list": f"{statistics.median(paints):.0f} ms",
        "the list, with its rows": f"{statistics.median(jobs):.0f} ms",
        "a click, then the chart of the metric": f"{statistics.median(charts):.0f} ms",
        "scrolling the log, frames over 50 ms": f"{len(slow)} of {len(gaps)}",
        "scrolling the log, longest frame": f"{max(gaps):.0f} ms",
    }


def shown_number(page: Any, selector: str) -> int:
    """What the page itself says of how much it shows."""
    page.locator(selector).get_by_text(re.compile(r"\d")).first.wait_for()
    return int(re.sub(r"\D", "", page.locator(selector).first.inner_text().split(" ")[0]))


if __name__ == "__main__":
    main()
