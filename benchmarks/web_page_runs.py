"""The web page over many runs: the list, runs with many metrics compared, a page left alone.

    .venv/bin/python benchmarks/web_page_runs.py [--runs 100000] [--compared 50] [--metrics 1000]
                                                [--points 2000] [--rounds 5]

A server over rows that its own stores wrote, and Chromium on this machine; needs `make chromium`
and the group `ui`. Compared are the newest runs, each with the same metrics; a last run for each
thousand columns has names of its own, for the choice of columns. The memory is that of the
browser's process for the page (its share of common pages counted, as PSS), garbage collected.
Goals: compared in 600 ms, with its charts in 1 s, and 300 MB; a page left alone takes below 1 % of
a core.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from figures import processor_s  # noqa: E402
from many_runs import fill  # noqa: E402
from sqlalchemy import insert, select  # noqa: E402
from web_page_browser import CHROMIUM, PAINT, WORKSPACE  # noqa: E402

from end_to_end.yard_under_test import Yard, remove, running_server  # noqa: E402
from torchyard.base.db import Database  # noqa: E402
from torchyard.jobs.history import history_store, metric_blocks  # noqa: E402
from torchyard.jobs.records import store  # noqa: E402

# When every chart that is in the window has its lines, in ms.
DRAWN = """async () => {
    const isMissing = (metric) => !metric.querySelector('.legend-value');
    const end = performance.now() + 30_000;
    while (performance.now() < end) {
        const metrics = [...document.querySelectorAll('section.metric')];
        const isBelow = (metric) => metric.getBoundingClientRect().top > innerHeight;
        const below = metrics.findIndex(isBelow);
        const seen = metrics.slice(0, below < 0 ? metrics.length : below);
        if (seen.length && !seen.some(isMissing)) return performance.now();
        await new Promise(requestAnimationFrame);
    }
    throw new Error("no chart is in the window, or one stays empty");
}"""
ALONE_S = 20
_ROWS = 500


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--compared", type=int, default=50)
    parser.add_argument("--metrics", type=int, default=1_000)
    parser.add_argument("--points", type=int, default=2_000)
    parser.add_argument("--columns", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torchyard-page-bench-"))
    try:
        home = folder / "home"
        fill(home, "", options.runs)
        names = log_metrics(home, options)
        with running_server(Yard(home)) as yard, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=CHROMIUM
            )
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(60_000)
            page.goto(yard("ui", "--no-open").strip())
            page.get_by_role("navigation", name="Sections").wait_for()
            url = json.loads((home / "server.json").read_text())["url"] + WORKSPACE
            for name, value in figures(page, url, names, options, yard).items():
                print(f"{name:<60} {value}", flush=True)
            browser.close()
    finally:
        remove(folder)
    print(f"{'load of the machine over the last minute':<60} {os.getloadavg()[0]:.1f}")


def log_metrics(home: Path, options: argparse.Namespace) -> list[str]:
    """Give the newest runs their metrics; returns the names of those that are compared.

    All metrics of a run have the same points, which are packed once.
    """
    database = Database(f"sqlite:///{home / 'torchyard.db'}")
    newest = (
        select(store.jobs.c.id, store.jobs.c.name)
        .order_by(store.jobs.c.id.desc())
        .limit(options.compared + options.columns // options.metrics)
    )
    with database.write() as connection:
        runs = connection.execute(newest).all()
        for at, (job, _) in enumerate(runs):
            prefix = f"column {at}/" if at >= options.compared else ""
            metric, blocks = packed(options.points, at)
            for start in range(0, options.metrics, _ROWS):
                keys = [
                    {"job_id": job, "key": f"{prefix}metric/{n:04}"}
                    for n in range(start, min(start + _ROWS, options.metrics))
                ]
                connection.execute(
                    insert(history_store.metrics), [{**key, **metric} for key in keys]
                )
                connection.execute(
                    insert(history_store.metric_blocks_table),
                    [{**key, **block} for key in keys for block in blocks],
                )
    database.close()
    return [name for _, name in runs[: options.compared]]


def packed(count: int, run: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The rows of a metric and of its blocks, without the run and the key."""
    points = [
        metric_blocks.point(1_000 * n, n, 1 / (n + 1) + n % 7 / 100 + run / 300)
        for n in range(count)
    ]
    last = points[-1]
    blocks = [
        {
            **{"number": number, "count": len(block), "data": metric_blocks.pack(block)},
            **vars(metric_blocks.bounds(block)),
        }
        for number, block in enumerate(metric_blocks.cut(points))
    ]
    metric = {
        **{"points": len(points), "blocks": len(blocks), "tail": b"", "latest_value": last.value},
        **{"latest_step": last.step, "latest_timestamp": last.timestamp},
        **{"max_step": last.step, "max_timestamp": last.timestamp},
    }
    return metric, blocks


def figures(
    page: Any, url: str, names: list[str], options: argparse.Namespace, yard: Yard
) -> dict[str, str]:
    paints, lists, compared, drawn = [], [], [], []
    for _ in range(options.rounds):
        page.goto("about:blank")
        page.goto(f"{url}/jobs")
        page.locator(".job-link").first.wait_for()
        lists.append(page.evaluate("performance.now()"))
        paints.append(page.evaluate(PAINT))
    page.get_by_role("button", name="Columns").click()
    start = time.perf_counter()
    last = f"metric/{options.metrics - 1:04}"
    page.get_by_role("searchbox", name="Search columns").fill(last)
    page.get_by_role("checkbox", name=last).first.wait_for()
    column_ms = (time.perf_counter() - start) * 1000
    page.keyboard.press("Escape")
    query = "&".join(f"job={name}" for name in names)
    for _ in range(options.rounds):
        page.goto("about:blank")
        page.goto(f"{url}/compare?{query}")
        page.locator(".compared-job").nth(len(names) - 1).wait_for()
        compared.append(page.evaluate("performance.now()"))
        drawn.append(page.evaluate(DRAWN))
    memory = memory_mb(page)
    nodes = page.evaluate("document.querySelectorAll('*').length")
    page.goto(f"{url}/jobs")
    page.locator(".job-link").first.wait_for()
    page.wait_for_timeout(2_000)
    before, server_before = sum(map(processor_s, renderers())), sum(map(processor_s, server(yard)))
    page.wait_for_timeout(ALONE_S * 1000)
    alone = (sum(map(processor_s, renderers())) - before) / ALONE_S
    server_alone = (sum(map(processor_s, server(yard))) - server_before) / ALONE_S
    title = f"{len(names)} runs x {options.metrics} metrics x {options.points} points"
    return {
        f"first paint of the list of {options.runs:,} runs": _ms(paints),
        "the list, with its rows": _ms(lists),
        f"a column found among {options.columns:,}": f"{column_ms:.0f} ms",
        f"compared, {title}: the page": _ms(compared),
        "the same, with its first charts": _ms(drawn),
        "the same: memory of the page's process": f"{memory:.0f} MB",
        "the same: elements": f"{nodes:,}",
        "the list left alone: the browser's share of a core": f"{alone:.2%}",
        "the list left alone: the server's share of a core": f"{server_alone:.2%}",
    }


def _ms(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ms"


def memory_mb(page: Any) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    sizes = []
    for process in renderers():
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
        match = re.search(r"^Pss:\s+(\d+) kB", text, re.M)
        sizes.append(int(match[1]) / 1000 if match else 0.0)
    return max(sizes)


def renderers() -> list[int]:
    """Chromium's processes for pages, of which this program has one."""
    listed = subprocess.run(
        ["pgrep", "-f", "chromium.*--type=renderer"], capture_output=True, text=True, check=True
    )
    return [int(line) for line in listed.stdout.split()]


def server(yard: Yard) -> list[int]:
    return [int(process.split()[0]) for process in yard.processes()]


if __name__ == "__main__":
    main()
