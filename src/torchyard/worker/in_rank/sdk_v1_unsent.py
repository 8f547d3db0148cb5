"""What a script gave SDK v1 to log and the client has not sent yet, on the node's disk.

Owns: a copy of each value that `run.log` queues, until its batch was answered; reading the copies.
Leaves: noticing the client's import to sdk_v1_exit.py, delivering what is left to node/node.py.
Always: a Python that is killed loses nothing that `run.log` had returned from; a value costs some
10 µs and no request. Nothing is imported that the client does not import; whatever fails in the
script's process fails silently. `watch` runs on Python 3.6 and later, `unsent` in the worker.

A file `<pid>.unsent` holds one JSON object a line: a value with its number, or the numbers of those
that were sent. It is cut when all were, and written again without those when it has become large.
"""

import json
import os
import threading

MYPY = False
if MYPY:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

ENDING = ".unsent"
_LARGE_BYTES = 1 << 20
# As numbers of NumPy and others, which JSON does not know.
_encode = json.JSONEncoder(separators=(",", ":"), default=float).encode


class _Copies:
    """Of one process; a child that it forks begins its own."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._path = os.path.join(self._folder, str(self._pid) + ENDING)
        self._file = -1
        self._size = 0
        self._lines = {}  # type: dict[int, bytes]

    def keep(self, run: str, item: "Any") -> None:
        if os.getpid() != self._pid:
            self._begin()
        line = _line({"id": id(item), "run": run, "metric": _body(item)})
        with self._lock:
            self._lines[id(item)] = line
            self._write(line)

    def sent(self, items: "Any") -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            ids = [id(value) for value in items if self._lines.pop(id(value), None) is not None]
            if not ids:
                return
            if not self._lines:
                os.ftruncate(self._file, 0)
                self._size = 0
                return
            self._write(_line({"sent": ids}))
            if self._size > max(_LARGE_BYTES, 2 * sum(map(len, self._lines.values()))):
                self._write_again()

    def _write(self, content: bytes) -> None:
        if self._file < 0:
            self._file = _opened(self._path)
        self._size += len(content)
        os.write(self._file, content)

    def _write_again(self) -> None:
        draft = _opened(self._path + ".new")
        content = b"".join(self._lines.values())
        os.write(draft, content)
        os.rename(self._path + ".new", self._path)
        os.close(self._file)
        self._file, self._size = draft, len(content)


def watch(folder: str) -> None:
    """Copy what is queued from now on; the client is being imported.

    Args:
        folder: of the rank, for its records.
    """
    name = "azureml._common.async_utils.batch_task_queue"
    queues = __import__(name, fromlist=["BatchTaskQueue"]).BatchTaskQueue
    copies = _Copies(folder)
    begin, add = queues.__init__, queues.add_item

    def __init__(self: "Any", work_func: "Any", *args: "Any", **more: "Any") -> None:
        def send(items: "Any", *args: "Any", **more: "Any") -> "Any":
            answer = work_func(items, *args, **more)
            _silently(copies.sent, items)
            return answer

        send.__name__ = getattr(work_func, "__name__", "send")
        self._torchyard_run = getattr(getattr(work_func, "__self__", None), "_run_id", None)
        begin(self, send, *args, **more)

    def add_item(self: "Any", item: "Any") -> "Any":
        run = getattr(self, "_torchyard_run", None)
        if run and hasattr(item, "columns"):
            # Before it is queued: it may be sent at once.
            _silently(copies.keep, run, item)
        return add(self, item)

    queues.__init__, queues.add_item = __init__, add_item


def files_in(folder: "Path") -> "list[Path]":
    """Return the files of all ranks; called in the worker.

    Args:
        folder: with the folders of the ranks.
    """
    files = [
        folder / os.path.relpath(os.path.join(rank, name), str(folder))
        for rank, _, names in os.walk(str(folder))
        for name in names
        if name.endswith(ENDING)
    ]
    return sorted(files)


def unsent(folder: "Path") -> "Iterator[tuple[str, dict[str, Any]]]":
    """Run and metric, as Azure's service takes it, of each value that was not sent.

    Args:
        folder: with the folders of the ranks.
    """
    for file in files_in(folder):
        waiting = {}  # type: dict[int, tuple[str, dict[str, Any]]]
        try:
            lines = file.read_bytes().splitlines()
        except OSError:
            continue
        for line in lines:
            try:
                content = json.loads(line)
                if "sent" in content:
                    for number in content["sent"]:
                        waiting.pop(number, None)
                else:
                    waiting[content["id"]] = str(content["run"]), dict(content["metric"])
            except (ValueError, TypeError, KeyError):
                continue  # cut off, by a death or a full disk
        yield from waiting.values()


def _body(item: "Any") -> "dict[str, Any]":
    """As the client sends it; its own way to say so takes a millisecond."""
    values = [
        {
            "metricId": value.metric_id,
            "createdUtc": str(value.created_utc),
            "step": value.step,
            "data": value.data,
        }
        for value in item.value
    ]
    kind = {"uxMetricType": item.properties.ux_metric_type}
    return {"name": item.name, "columns": item.columns, "properties": kind, "value": values}


def _line(body: "dict[str, Any]") -> bytes:
    return _encode(body).encode() + b"\n"


def _opened(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _silently(do: "Any", *args: "Any") -> None:
    try:
        do(*args)
    except Exception:
        pass
