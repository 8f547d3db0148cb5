"""Write down how a Python of a rank ends, for its worker to read.

Owns: the record's fields and its file.
Leaves: when to write to rank_hook.py, what it means to diagnosis/artifacts.py.
Always: a file is complete or absent. Runs inside the ranks on Python 3.6 and later, and is
imported only when something went wrong.
"""

import json
import os
import time
import traceback

MYPY = False
if MYPY:
    from typing import Any

_MESSAGE = 4000
# A handler of signals may raise in here, as that of torch's data loader does.
_TRIES = 3
_HEAD, _TAIL = 16000, 32000
_CONNECTS = ("create_connection", "_sock_connect", "sock_connect")
_MOST_CHAINED, _LONGEST_ADDRESS = 8, 200


def describe(
    started: float,
    kind: str,
    error_type: "Any",
    error: "Any",
    trace: "Any",
    status: "Any" = None,
    callers: "Any" = (),
) -> "Any":
    """An uncaught exception, a thread's, or the `sys.exit` that ends the process.

    `callers` are where `sys.exit` was called, then who called that function, and so on.
    """
    return {
        "kind": kind,
        "type": _name(error_type),
        "message": _short(_text(error), _MESSAGE, 0),
        "traceback": _traceback(error_type, error, trace),
        "at": time.time(),
        "started": started,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "rank": rank(),
        "world_size": _first(("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")),
        "address": _address(error, trace),
        "errno": getattr(error, "errno", None) if isinstance(error, OSError) else None,
        "module": getattr(error, "name", None) if isinstance(error, ImportError) else None,
        "status": status if isinstance(status, int) else None,
        "said": None if status is None or isinstance(status, int) else _text(status)[:_MESSAGE],
        "callers": callers,
    }


def rank() -> str:
    """This process's rank as its launcher numbers it; empty outside of a job."""
    return _first(("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "TORCHYARD_RANK"))


def _first(names: "Any") -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def save(folder: str, record: "Any") -> None:
    name = f"{int(time.time() * 1e6):020d}-{os.getpid()}"
    draft = os.path.join(folder, name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(record, file)
    os.rename(draft, os.path.join(folder, name + ".json"))


def _address(error: "Any", trace: "Any") -> str:
    """The `host:port` that Python could not connect to, of which most of these errors say nothing;
    empty where none is known.
    """
    for _ in range(_MOST_CHAINED):
        if isinstance(error, OSError):
            while trace is not None:
                # Of Python's `socket`, and of urllib3; of asyncio, `sock_connect`.
                frame = trace.tb_frame
                is_connect = frame.f_code.co_name in _CONNECTS
                address = frame.f_locals.get("address") if is_connect else None
                if isinstance(address, tuple) and [*map(type, address[:2])] == [str, int]:
                    return f"{address[0]}:{address[1]}"[:_LONGEST_ADDRESS]
                trace = trace.tb_next
        is_hidden = getattr(error, "__suppress_context__", False)
        context = None if is_hidden else getattr(error, "__context__", None)
        error = getattr(error, "__cause__", None) or context
        trace = getattr(error, "__traceback__", None)
    return ""


def _name(error_type: "Any") -> str:
    """As tracebacks write it."""
    if error_type is None:
        return ""
    module, name = error_type.__module__, error_type.__qualname__
    return name if module in ("builtins", "__main__") else f"{module}.{name}"


def _text(value: "Any") -> str:
    try:
        return "" if value is None else str(value)
    except Exception:
        return "<its text could not be made>"


def _traceback(error_type: "Any", error: "Any", trace: "Any") -> str:
    if error_type is None:
        return ""
    for _ in range(_TRIES):
        try:
            lines = traceback.format_exception(error_type, error, trace)
            return _short("".join(lines), _HEAD, _TAIL)
        except Exception:
            continue
    return ""


def _short(text: str, head: int, tail: int) -> str:
    if len(text) <= head + tail:
        return text
    return text[:head] + ("\n[...]\n" + text[-tail:] if tail else "...")
