"""What the relay remembers of its script's runs.

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
ParamKey = tuple[str, str]


class RunState:
    """Used by many threads. The file has one JSON object a line and only grows."""

    def __init__(self, file: Path, own_run: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._runs = {own_run}
        self._params: dict[ParamKey, str] = {}
        self._port = 0
        # The last line of a worker that was killed may be half a line.
        for line in file.read_bytes().splitlines(keepends=True) if file.exists() else ():
            self._replay(line)
        self._file = open(file, "ab", buffering=0)
        if self._file.tell():
            self._file.write(b"\n")

    @property
    def port(self) -> int:
        """Where the relay listened last; 0 when it never did."""
        return self._port

    def set_port(self, port: int) -> None:
        if port != self._port:
            self._port = port
            self._write({"port": port})

    def knows(self, run: str) -> bool:
        with self._lock:
            return run in self._runs

    def learn(self, run: str) -> None:
        """The server has said that it exists."""
        with self._lock:
            if run in self._runs:
                return
            self._runs.add(run)
        self._write({"run": run})

    def forget(self, run: str) -> None:
        with self._lock:
            if run not in self._runs:
                return
            self._runs.discard(run)
        self._write({"gone": run})

    def reserve(self, records: Iterable[Mapping[str, Any]]) -> dict[ParamKey, str]:
        """Take these records' parameters; returns the new ones, to be committed or released.

        Raises:
            InvalidRecord: one of them has another value already; none is taken.
        """
        params = [
            ((record["run"], record["key"]), record["value"])
            for record in records
            if record["kind"] == "param"
        ]
        new_params: dict[ParamKey, str] = {}
        if not params:
            return new_params
        with self._lock:
            for param_key, value in params:
                current = self._params.get(param_key)
                if current is None:
                    current = new_params.setdefault(param_key, value)
                if current != value:
                    raise InvalidRecord(
                        "Changing param values is not allowed. Param with "
                        f"key='{param_key[1]}' was already logged with value='{current[:200]}' "
                        f"for run ID='{param_key[0]}'. Attempted logging new value '{value[:200]}'."
                    )
            self._params.update(new_params)
        return new_params

    def commit(self, params: Mapping[ParamKey, str]) -> None:
        """Their records are in the spool."""
        if params:
            self._write({"params": [[*param_key, value] for param_key, value in params.items()]})

    def release(self, params: Mapping[ParamKey, str]) -> None:
        """Their records could not be kept."""
        with self._lock:
            for param_key in params:
                self._params.pop(param_key, None)

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _replay(self, line: bytes) -> None:
        try:
            body = json.loads(line)
        except ValueError:
            return
        if "run" in body:
            self._runs.add(body["run"])
        elif "gone" in body:
            self._runs.discard(body["gone"])
        elif "port" in body:
            self._port = body["port"]
        else:
            self._params.update({(run, key): value for run, key, value in body["params"]})

    def _write(self, body: Mapping[str, Any]) -> None:
        line = json.dumps(body).encode() + b"\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(line)
