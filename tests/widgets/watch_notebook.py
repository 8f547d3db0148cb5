"""Run a notebook in JupyterLab in Chromium, as somebody who looks at it would.

    python watch_notebook.py ADDRESS FOLDER

Runs in the client's own environment (see clients/azureml-widgets-1.62.in), and writes into FOLDER
what was on the screen: learning.png, ended.png, failed.png, children.png, sweep.png, and seen.json.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Request, sync_playwright

CHROMIUM = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTH, HEIGHT = 1280, 1000
LEARNING, FAILED, PARENT, DATA, SWEEP = 2, 3, 4, 5, 6
LIMIT_S = 600
SWEEP_PLOT = "HyperDrive Run Primary Metric : accuracy"
# Number, best value, status, start, duration, run, and two parameters.
SWEEP_COLUMNS = 8
SCRIPT_LOG = "user_logs/std_log.txt"
_PLOTS = """cell => Object.fromEntries(
    Array.from(cell.querySelectorAll('.js-plotly-plot'))
        .filter(plot => plot.data?.[0]?.y && plot.layout.title)
        .map(plot => [plot.layout.title.text ?? plot.layout.title, plot.data[0].y.length]))"""
# How many series are in each chart.
_LINES = """cell => Object.fromEntries(
    Array.from(cell.querySelectorAll('.js-plotly-plot'))
        .filter(plot => plot.data?.[0]?.y && plot.layout.title)
        .map(plot => [plot.layout.title.text ?? plot.layout.title, plot.data.length]))"""


def main(address: str, folder: Path) -> None:
    seen: dict[str, Any] = {"requests": [], "errors": []}
    profile = folder / "chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=shutil.which("chromium"),
            args=list(CHROMIUM),
            viewport={"width": WIDTH, "height": HEIGHT},
        )
        page = browser.new_page()
        page.on("request", lambda request: seen["requests"].append(_place(request)))
        page.set_default_timeout(LIMIT_S * 1000)
        page.on("pageerror", lambda error: seen["errors"].append(str(error)))
        try:
            _start_kernel(page, address)
            page.goto(address)
            _run_all(page)
            _watch(page, folder, seen)
        finally:
            page.screenshot(path=folder / "last.png")
            outputs = page.locator(".jp-Notebook .jp-CodeCell .jp-Cell-outputWrapper")
            seen["last"] = outputs.all_inner_texts()
            (folder / "seen.json").write_text(json.dumps(seen, indent=1))
            browser.close()


def _start_kernel(page: Page, address: str) -> None:
    """While the page loads."""
    top, notebook = address.split("/lab/tree/")
    name, query = notebook.split("?")
    session = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
    answer = page.request.post(f"{top}/api/sessions?{query}", data=session, timeout=LIMIT_S * 1000)
    assert answer.ok, answer.text()


def _run_all(page: Page) -> None:
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    cells.last.wait_for()
    # The kernel has answered; cells that are run before may be lost on a busy machine.
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    # Without the list of files there is room for the notebook.
    page.keyboard.press("Control+b")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator('.lm-Menu-item[data-command="runmenu:run-all"]').click()
    kernel = page.locator(".jp-Dialog button.jp-mod-accept")

    def begun() -> bool:
        # JupyterLab asks which one when the notebook's own has not started yet.
        if kernel.count():
            kernel.click()
        return "[ ]" not in cells.first.locator(".jp-InputPrompt").inner_text()

    _until(begun, "the first cell runs")


def _watch(page: Page, folder: Path, seen: dict[str, Any]) -> None:
    def learning() -> dict[str, Any]:
        return _output_of(page, LEARNING)

    def half() -> bool:
        now = learning()
        _choose_log(page, LEARNING)
        # The nodes are asked for beside the log, and come a little later.
        is_running = "(Running)" in now["text"] and "running1" in now["text"]
        return is_running and "epoch 10:" in now["log"] and now["plots"] != {}

    _until(half, "the widget shows half of the epochs")
    seen["learning"] = learning()
    _shoot(page, LEARNING, folder / "learning.png")
    (folder / "seen").touch()
    _until(lambda: "Run is completed" in learning()["log"], "the widget shows the end")
    _until(lambda: "(Completed)" in learning()["text"], "the widget's title says so")
    seen["ended"] = learning()
    _shoot(page, LEARNING, folder / "ended.png")
    seen["run"] = _output_of(page, LEARNING - 1)
    if not _has_cell(folder / "learning.ipynb", FAILED):
        return

    def failed() -> bool:
        _choose_log(page, FAILED)
        log = _output_of(page, FAILED)["log"]
        return "Error occurred" in log and "Traceback" in log

    _until(failed, "the widget shows the error")
    seen["failed"] = _output_of(page, FAILED)
    _shoot(page, FAILED, folder / "failed.png")
    _until(lambda: len(_output_of(page, PARENT)["rows"]) == 2, "the widget shows the children")
    seen["parent"] = _output_of(page, PARENT)
    _shoot(page, PARENT, folder / "children.png")
    _until(lambda: "True" in _output_of(page, DATA)["text"], "the widget's data are read")
    _watch_sweep(page, folder, seen)


def _has_cell(notebook: Path, index: int) -> bool:
    cells = json.loads(notebook.read_text())["cells"]
    return index < len([cell for cell in cells if cell["cell_type"] == "code"])


def _watch_sweep(page: Page, folder: Path, seen: dict[str, Any]) -> None:
    """The widget reads a sweep again every 20 seconds."""

    def is_whole() -> bool:
        now = _output_of(page, SWEEP)
        ended = "Status\tCompleted" in now["text"] and "ends as Completed" in now["log"]
        cells = [row.split("\t") for row in now["rows"]]
        # The widget shows a trial before it has read the trial's parameters.
        filled = all(len(row) == SWEEP_COLUMNS and all(row) for row in cells)
        return ended and len(cells) == 3 and filled and now["lines"].get(SWEEP_PLOT) == 3

    _until(is_whole, "the widget shows the end of the sweep")
    seen["sweep"] = _output_of(page, SWEEP)
    _shoot(page, SWEEP, folder / "sweep.png")


def _choose_log(page: Page, index: int) -> None:
    """Choose the script's log, as a person would, where the widget stays at that of the build.

    It takes the log with the largest number in its name for the newest; and a notebook that is
    run whole keeps the kernel busy, which may lose the widget's own choice.
    """
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(index)
    if SCRIPT_LOG in cell.locator("#logName").all_inner_texts():
        return
    selector = cell.locator("#logSelector")
    if selector.locator(f"option[value='{SCRIPT_LOG}']").count():
        selector.select_option(SCRIPT_LOG)


def _output_of(page: Page, index: int) -> dict[str, Any]:
    """What a cell's output shows now."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(index).locator(".jp-Cell-outputWrapper")
    links = cell.locator("a").evaluate_all("all => all.map(one => [one.innerText, one.href])")
    return {
        "text": cell.inner_text(),
        "log": "\n".join(area.input_value() for area in cell.locator("textarea").all()),
        "plots": cell.evaluate(_PLOTS),
        "lines": cell.evaluate(_LINES),
        "rows": cell.locator(".jsgrid-row, .jsgrid-alt-row").all_inner_texts(),
        "links": dict(links),
    }


def _shoot(page: Page, index: int, file: Path) -> None:
    """JupyterLab from its top to the end of a cell."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(index)
    cell.scroll_into_view_if_needed()
    box = cell.bounding_box()
    assert box is not None
    height = min(box["y"] + box["height"], HEIGHT)
    page.screenshot(path=file, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})


_END = time.monotonic() + LIMIT_S


def _until(condition: Callable[[], bool], goal: str) -> None:
    while not condition():
        assert time.monotonic() < _END, f"it did not come: {goal}"
        time.sleep(0.3)


def _place(request: Request) -> str:
    return str(request.url).partition("?")[0]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
