"""Run the code cells of one notebook as Jupyter would, and write down how each ended.

    python notebook_cells.py NOTEBOOK RESULTS.json CELL_LIMIT_S

Runs inside the Python of the notebook's user, with IPython and nothing of ours.

Owns: cells in order in one IPython shell, a limit per cell, the results file.
Leaves: the notebook's folder, its variables and what its placeholders become to run_notebooks.py.
Always: the first cell that fails ends the notebook, as "Run All" does; a cell that has raised
    `SystemExit`, asked for input or outlasted its limit has failed; a cell tagged
    `raises-exception` may fail. The results are written after every cell.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

LAST_LINES = 6


class CellTimeout(BaseException):
    """The cell outlasted its limit; no `except Exception` of a notebook stops it."""


def run_cells(notebook: dict[str, Any], results_file: Path, limit_s: int) -> bool:
    """Run every code cell, and return whether all of them passed."""
    os.environ.setdefault("MPLBACKEND", "agg")
    shell = _shell()
    shell.run_line_magic("colors", "NoColor")
    results = []
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    signal.signal(signal.SIGALRM, _raise_timeout)
    for number, cell in enumerate(cells, 1):
        print(f"\n--- cell {number} of {len(cells)} ---", flush=True)
        began = time.monotonic()
        error = _run_cell(shell, "".join(cell["source"]), limit_s)
        if error and "raises-exception" in cell.get("metadata", {}).get("tags", []):
            error = ""
        results.append(
            {"cell": number, "seconds": round(time.monotonic() - began, 1), "error": error}
        )
        results_file.write_text(json.dumps({"cells": len(cells), "results": results}, indent=1))
        if error:
            return False
    return True


def _shell() -> Any:
    interactiveshell = importlib.import_module("IPython.core.interactiveshell")

    # Azure's widgets go by the class's name: in Jupyter they don't block the cell.
    class ZMQInteractiveShell(interactiveshell.InteractiveShell):  # type: ignore[misc, name-defined]
        def enable_gui(self, gui: Any = None) -> None:
            """`%matplotlib inline` asks for it; pictures go nowhere."""

    return ZMQInteractiveShell.instance()


def _run_cell(shell: Any, source: str, limit_s: int) -> str:
    """The cell's exception with its last lines, or an empty text."""
    signal.alarm(limit_s)
    try:
        result = shell.run_cell(source, store_history=True)
    except CellTimeout:
        return f"CellTimeout: longer than {limit_s} s"
    except SystemExit as error:
        return f"SystemExit: {error}"
    finally:
        signal.alarm(0)
    failure = result.error_before_exec or result.error_in_exec
    if failure is None:
        return _failed_command(shell)
    if isinstance(failure, CellTimeout):
        where = "".join(traceback.format_tb(failure.__traceback__)[-2:])
        return f"CellTimeout: longer than {limit_s} s\n{where}"
    lines = "".join(traceback.format_exception_only(type(failure), failure)).strip().splitlines()
    return "\n".join(
        line[:600] for line in [*lines[:LAST_LINES], *lines[LAST_LINES:][-LAST_LINES:]]
    )


def _failed_command(shell: Any) -> str:
    """Why the cell's `!` or `%` command failed; Jupyter itself only prints it."""
    code = shell.user_ns.pop("_exit_code", 0)
    return f"a shell command ended with exit code {code}" if code else ""


def _raise_timeout(number: int, frame: object) -> None:
    raise CellTimeout


def main(arguments: list[str]) -> int:
    notebook, results_file, limit_s = arguments
    # Modules beside the notebook are found, and none beside this program.
    sys.path[0] = ""
    document = json.loads(Path(notebook).read_text(encoding="utf-8"))
    return 0 if run_cells(document, Path(results_file), int(limit_s)) else 1


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that a notebook has left behind do not keep its process.
    os._exit(code)
