"""Look at torchyard's widget in JupyterLab in Chromium: live, ended, without its kernel.

    python watch_run_details.py TOP TOKEN FOLDER YARD

Runs in the client's own environment (see clients/jupyter-anywidget.in), and writes into FOLDER
what was on the screen: pictures, and seen.json. TOP is JupyterLab's address.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, Request, sync_playwright
from watch_notebook import CHROMIUM

WIDTH, HEIGHT = 1100, 1000
JOB, LIVE, HOSTILE, LIST = range(4)
LIMIT_S = 600
_COMMAND = "([id, args]) => window.jupyterapp.commands.execute(id, args)"
_IDLE = "Python 3 (ipykernel) | Idle"
_END = time.monotonic() + LIMIT_S


def main(top: str, token: str, folder: Path, yard: str) -> None:
    seen: dict[str, Any] = {"requests": [], "errors": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            folder / "chromium",
            executable_path=shutil.which("chromium"),
            args=list(CHROMIUM),
            viewport={"width": WIDTH, "height": HEIGHT},
        )
        page = browser.new_page()
        page.on("request", lambda request: seen["requests"].append(_place(request)))
        page.on("pageerror", lambda error: seen["errors"].append(str(error)))
        page.set_default_timeout(LIMIT_S * 1000)
        try:
            _open(page, f"{top}lab/tree/details.ipynb?token={token}")
            _command(page, "notebook:run-all-cells")
            _watch_live(page, folder, yard, seen)
            _watch_hostile(page, folder, seen)
            _command(page, "docmanager:save")
            _until(lambda: "Completed" in (folder / "details.ipynb").read_text(), "it is saved")
            _reopen(page, top, token, folder, seen)
        finally:
            page.screenshot(path=folder / "details-last.png")
            (folder / "seen.json").write_text(json.dumps(seen, indent=1))
            browser.close()


def _open(page: Page, address: str) -> None:
    page.goto(address)
    page.locator(".jp-Notebook .jp-CodeCell").last.wait_for()
    # Cells that are run before the kernel has answered may be lost on a busy machine.
    page.get_by_text(_IDLE).wait_for()
    page.keyboard.press("Control+b")


def _watch_live(page: Page, folder: Path, yard: str, seen: dict[str, Any]) -> None:
    def live() -> dict[str, Any]:
        return _widget_of(page, LIVE)

    def is_half() -> bool:
        now = live()
        return "Running" in now["text"] and "epoch 10:" in now["log"] and len(now["charts"]) == 2

    _until(is_half, "the widget shows half of the epochs")
    seen["learning"] = live()
    seen["job"] = _output(page, JOB).inner_html()
    subprocess.run([yard, "server", "stop"], check=True)
    _until(lambda: "Not up to date" in live()["text"], "the widget says that nobody answers")
    subprocess.run([yard, "server", "start"], check=True)
    _until(lambda: "Not up to date" not in live()["text"], "the widget goes on")
    _shoot(page, LIVE, folder / "details-light.png")
    _theme(page, "JupyterLab Dark")
    _until(lambda: live()["theme"] == "dark", "the widget is dark")
    _shoot(page, LIVE, folder / "details-dark.png")
    _theme(page, "JupyterLab Light")
    (folder / "seen").touch()
    _until(lambda: "Completed" in live()["text"], "the widget shows the end")
    seen["ended"] = live()


def _watch_hostile(page: Page, folder: Path, seen: dict[str, Any]) -> None:
    _until(lambda: "Failed" in _widget_of(page, HOSTILE)["text"], "the widget shows the error")
    _until(lambda: _output(page, LIST).locator("tr").count() >= 3, "the jobs are listed")
    seen["hostile"] = _widget_of(page, HOSTILE)
    seen["list"] = _output(page, LIST).inner_text()
    seen["hacked"] = page.evaluate("String(window.hacked)")
    _shoot(page, HOSTILE, folder / "details-hostile.png")


def _reopen(page: Page, top: str, token: str, folder: Path, seen: dict[str, Any]) -> None:
    """With a kernel that knows nothing of it, then as a notebook from elsewhere."""
    sessions = page.request.get(f"{top}api/sessions?token={token}").json()
    for session in sessions:
        page.request.delete(f"{top}api/sessions/{session['id']}?token={token}")
    _open(page, f"{top}lab/tree/details.ipynb?token={token}")
    _until(lambda: "learned" in _output(page, LIVE).inner_text(), "the saved page is shown")
    page.wait_for_timeout(1000)  # for what would come after it
    seen["reopened"] = _output(page, LIVE).inner_text()
    _shoot(page, LIVE, folder / "details-reopened.png")
    # JupyterLab trusts what it has signed itself, and nothing that has changed since.
    document = json.loads((folder / "details.ipynb").read_text())
    html = document["cells"][HOSTILE]["outputs"][0]["data"]["text/html"]
    html.append("<script>window.hacked = 1</script><b>changed</b>")
    (folder / "foreign.ipynb").write_text(json.dumps(document))
    _open(page, f"{top}lab/tree/foreign.ipynb?token={token}")
    _until(lambda: "changed" in _output(page, HOSTILE).inner_text(), "the foreign page is shown")
    seen["foreign"] = [_output(page, cell).inner_text() for cell in (LIVE, HOSTILE)]
    seen["pictures"] = _output(page, LIVE).locator("img").count()
    seen["hacked_later"] = page.evaluate("String(window.hacked)")
    _shoot(page, HOSTILE, folder / "details-foreign.png")


def _widget_of(page: Page, index: int) -> dict[str, Any]:
    """What the widget of a cell shows now; the locators look into its shadow root."""
    host = _output(page, index).locator(".torchyard-run")
    if not host.locator(".run").count():
        return {"text": "", "log": "", "charts": [], "theme": "", "links": [], "saved": ""}
    log = host.locator(".run-log")
    return {
        "text": host.locator(".run").inner_text(),
        "log": log.inner_text() if log.count() else "",
        "charts": host.locator("figure.chart:has(canvas)").evaluate_all(
            "all => all.map(one => one.getAttribute('aria-label'))"
        ),
        "values": host.locator(".legend-value").all_inner_texts(),
        "theme": host.get_attribute("data-theme"),
        "links": host.locator("a").evaluate_all("all => all.map(one => one.href)"),
        "saved": [
            page.is_visible() for page in _output(page, index).locator(".torchyard-saved").all()
        ],
    }


def _output(page: Page, index: int) -> Locator:
    cell = page.locator(".jp-NotebookPanel:visible .jp-Notebook .jp-CodeCell").nth(index)
    return cell.locator(".jp-Cell-outputWrapper")


def _shoot(page: Page, index: int, file: Path) -> None:
    output = _output(page, index)
    output.scroll_into_view_if_needed()
    output.screenshot(path=file)


def _theme(page: Page, name: str) -> None:
    _command(page, "apputils:change-theme", theme=name)


def _command(page: Page, name: str, **arguments: str) -> None:
    page.evaluate(_COMMAND, [name, arguments])


def _until(condition: Callable[[], bool], goal: str) -> None:
    while not condition():
        assert time.monotonic() < _END, f"it did not come: {goal}"
        time.sleep(0.3)


def _place(request: Request) -> str:
    return str(request.url).partition("?")[0]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
