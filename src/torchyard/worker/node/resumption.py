"""Tell the server from where a run goes on.

Owns: reading the note that `torchyard.train` leaves when it loads a checkpoint.
Leaves: what becomes of the metrics to the server, the record's way to relay/relay.py.
Always: at most one note an attempt; a bad one is the server's to refuse, and costs no job anything.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

TAG = "torchyard.resumed_from"
_EVERY_S = 1.0
_END_S = 1.0
_MOST_BYTES = 1_000


class Resumption:
    """Works in a thread between `start` and `close`.

    Args:
        note: where the first rank writes it.
        keep: gets the record; may raise OSError.
    """

    def __init__(
        self,
        run: str,
        note: Path,
        keep: Callable[[list[dict[str, Any]]], None],
        every_s: float = _EVERY_S,
    ) -> None:
        self._run_name = run
        self._note = note
        self._keep = keep
        self._every_s = every_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resumption", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Look once more, for jobs that end soon after they began."""
        self._ending.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        while True:
            is_last = self._ending.wait(self._every_s)
            if self._tell() or is_last:
                return

    def _tell(self) -> bool:
        try:
            with open(self._note, encoding="utf-8", errors="replace") as file:
                text = file.read(_MOST_BYTES)
            self._keep([{"kind": "tag", "run": self._run_name, "key": TAG, "value": text}])
        except FileNotFoundError:
            return False
        except OSError as error:
            print(f"{self._note}: {error}", file=sys.stderr, flush=True)
            return False
        return True
