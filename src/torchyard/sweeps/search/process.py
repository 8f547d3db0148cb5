"""The process in which Optuna runs, for one sweep.

Owns: reading requests from its standard input, answering on its standard output.
Leaves: the study to optuna_study.py, its own life to study_process.py.
Always: it ends when its input does, so with the server; nothing of it needs to be kept.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from typing import Any, BinaryIO

# Suggestions are short: more threads cost more than they bring, and take them from the trials.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def main() -> None:
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever a library prints goes elsewhere.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    from torchyard.sweeps.search.optuna_study import SweepStudy

    study = SweepStudy(pickle.load(requests))
    while (request := _next(requests)) is not None:
        number, trials = request
        try:
            answer: dict[str, Any] = {"parameters": study.suggest(number, trials)}
        except Exception as error:
            # Whatever a sampler raises is told to the person who submitted the sweep.
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _next(requests: BinaryIO) -> Any:
    try:
        return pickle.load(requests)
    except EOFError:
        return None


if __name__ == "__main__":
    main()
