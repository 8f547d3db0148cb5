"""A training loop that logs by SDK v1 and by MLflow, call by call.

    python run_log_loop.py --steps 2000 --device-ms 10

It runs as a job, with the real azureml-core and mlflow, and knows nothing of torchyard. It writes
`outputs/calls.json`: `{"calls": [[when the step began, in s since 1970, run.log in s,
mlflow.log_metric in s], ...], "flush_s": ..., "tag_s": ...}`.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

warnings.simplefilter("ignore")


def main() -> None:
    from azureml.core import Run

    import mlflow

    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--device-ms", type=float, required=True)
    arguments = parser.parse_args()
    run = Run.get_context(allow_offline=False)
    run.log("warm", 0)
    mlflow.log_metric("warm too", 0)
    calls = []
    for step in range(arguments.steps):
        time.sleep(arguments.device_ms / 1000)
        began, started = time.time(), time.perf_counter()
        run.log("by_run", step / 7)
        logged = time.perf_counter()
        mlflow.log_metric("by_mlflow", step / 7, step=step)
        ended = time.perf_counter()
        calls.append((began, logged - started, ended - logged))
    started = time.perf_counter()
    run.tag("steps", str(arguments.steps))
    tagged = time.perf_counter()
    run.flush()
    flushed = time.perf_counter()
    figures = {"calls": calls, "tag_s": tagged - started, "flush_s": flushed - tagged}
    written = Path("outputs/calls.part")
    written.write_text(json.dumps(figures))
    written.rename("outputs/calls.json")


if __name__ == "__main__":
    main()
