"""What the relay has to remember of its script's runs.

Owns: which runs are known, the parameters that were logged, the port; the file that keeps them.
Leaves: the records themselves to shared/history_spool.py.
Always: it is the same after a restart; a parameter is written down once its record is kept, so
that nothing is refused for a value that never was.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torchyard.shared.record_rules import InvalidRecord

# Run and key of a parameter.
Place = tuple[str, str]


class Memory:
    """Used by many threads. The file has one JSON object a line and only grows."""

    def __init__(self, file: Path, own_run: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._known = {own_run}
        self._params: dict[Place, str] = {}
        self._port = 0
        # The last line of a worker that was killed may be half a line.
        for line in file.read_bytes().splitlines(keepends=True) if file.exists() else ():
            self._recall(line)
        self._file = open(file, "ab", buffering=0)
        if self._file.tell():
            self._file.write(b"\n")

    @property
    def port(self) -> int:
        """Where the relay listened last; 0 when it never did."""
        return self._port

    def listens_on(self, port: int) -> None:
        if port != self._port:
            self._port = port
            self._write({"port": port})

    def knows(self, run: str) -> bool:
        with self._lock:
            return run in self._known

    def learn(self, run: str) -> None:
        """The server has told that it exists."""
        with self._lock:
            if run in self._known:
                return
            self._known.add(run)
        self._write({"run": run})

    def forget(self, run: str) -> None:
        with self._lock:
            if run not in self._known:
                return
            self._known.discard(run)
        self._write({"gone": run})

    def hold(self, records: Iterable[Mapping[str, Any]]) -> dict[Place, str]:
        """Take these records' parameters; returns the new ones, to be kept or let go.

        Raises:
            InvalidRecord: one of them has another value already; none is taken.
        """
        asked = [
            ((one["run"], one["key"]), one["value"]) for one in records if one["kind"] == "param"
        ]
        fresh: dict[Place, str] = {}
        if not asked:
            return fresh
        with self._lock:
            for place, value in asked:
                old = self._params.get(place)
                if old is None:
                    old = fresh.setdefault(place, value)
                if old != value:
                    raise InvalidRecord(
                        "Changing param values is not allowed. Param with "
                        f"key='{place[1]}' was already logged with value='{old[:200]}' for run "
                        f"ID='{place[0]}'. Attempted logging new value '{value[:200]}'."
                    )
            self._params.update(fresh)
        return fresh

    def keep(self, fresh: Mapping[Place, str]) -> None:
        """Their records are in the spool."""
        if fresh:
            self._write({"params": [[*place, value] for place, value in fresh.items()]})

    def let_go(self, fresh: Mapping[Place, str]) -> None:
        """Their records could not be kept."""
        with self._lock:
            for place in fresh:
                self._params.pop(place, None)

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _recall(self, line: bytes) -> None:
        try:
            body = json.loads(line)
        except ValueError:
            return
        if "run" in body:
            self._known.add(body["run"])
        elif "gone" in body:
            self._known.discard(body["gone"])
        elif "port" in body:
            self._port = body["port"]
        else:
            self._params.update({(run, key): value for run, key, value in body["params"]})

    def _write(self, body: Mapping[str, Any]) -> None:
        line = json.dumps(body).encode() + b"\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(line)
