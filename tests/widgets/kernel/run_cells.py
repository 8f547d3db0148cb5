"""Run cells in a Jupyter kernel and write what each of them showed, with the client's own Python.

    python run_cells.py CELLS.json SHOWN.json

Owns: the kernel's life.
Leaves: the cells, and what is made of what they showed, to the test.
Always: a cell that fails ends nothing; the next one runs.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from jupyter_client.manager import start_new_kernel

LIMIT_S = 300


def main(cells_file: str, shown_file: str) -> None:
    with open(cells_file, encoding="utf-8") as opened:
        cells = json.load(opened)
    manager, client = start_new_kernel(kernel_name="python3", startup_timeout=LIMIT_S)
    try:
        shown = {name: run(client, source) for name, source in cells.items()}
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    with open(shown_file, "w", encoding="utf-8") as opened:
        json.dump(shown, opened)


def run(client: Any, source: str) -> dict[str, str]:
    shown = {"stdout": "", "stderr": "", "html": "", "error": ""}

    def keep(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            shown[content["name"]] += content["text"]
        elif message["msg_type"] in ("execute_result", "display_data"):
            shown["html"] += content["data"].get("text/html", "")
        elif message["msg_type"] == "error":
            shown["error"] = "\n".join(content["traceback"])

    client.execute_interactive(source, output_hook=keep, timeout=LIMIT_S, allow_stdin=False)
    return shown


if __name__ == "__main__":
    main(*sys.argv[1:])
