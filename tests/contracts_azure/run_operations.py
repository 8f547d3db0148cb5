"""Do every operation in this Python's client, and write down what became of each.

    CLIENT/bin/python tests/contracts_azure/run_operations.py CLIENT FOLDER [WORD...]

FOLDER has config.json and gets results.json; WORDs choose the operations whose keys have one.
The variables that `yard client-env` prints are in the environment.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
import warnings
from pathlib import Path

from operations import World

_TRACE_LIMIT = 4000


def main(client: str, folder: Path, *words: str) -> None:
    warnings.filterwarnings("ignore")
    world = World(client, folder, client.rpartition("-")[2].replace(".", ""))
    # The modules of one interface need nothing of the other's packages.
    listed = "v1_operations" if client.startswith("azureml-core") else "all_operations"
    results = {}
    for operation in importlib.import_module(listed).OPERATIONS:
        if words and not any(word in operation.key for word in words):
            continue
        started = time.monotonic()
        try:
            result = {"ok": True, "value": operation.run(world)}
        except (Exception, SystemExit) as error:
            trace = traceback.format_exc()[-_TRACE_LIMIT:]
            result = {"ok": False, "error": f"{type(error).__name__}: {error}", "trace": trace}
        result["took_s"] = round(time.monotonic() - started, 2)
        results[operation.key] = result
        print(
            f"{result['took_s']:6.2f} s {'ok ' if result['ok'] else 'NO '} {operation.key}",
            flush=True,
        )
        if not result["ok"]:
            print(f"         {result['error'][:300]}", flush=True)
        partial_file = folder / "results.json.part"
        partial_file.write_text(json.dumps(results, default=str, indent=1))
        partial_file.replace(folder / "results.json")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
