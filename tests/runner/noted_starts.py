"""Note what a Python process starts and reads: the `sitecustomize` of a server under test.

Owns: the audit hook, one line of JSON for each event, in the file that a variable names.
Leaves: what may be started and read to docs/reference/started-programs.md.
Always: an event of an interpreter that starts is not noted, as nothing of torchyard is running.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

_FILES = ("pyvenv.cfg", "pip.conf", "uv.toml", ".condarc", "condarc", "containers.yml")
_PICKLES = (".pkl", ".pickle", ".joblib")
_SOURCE = f"{os.sep}torchyard{os.sep}"


def _module() -> str:
    """The innermost module of torchyard that is running; empty where none is."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if _SOURCE in name and name.endswith(".py"):
            return name.rpartition(_SOURCE)[2].replace(os.sep, "/")
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _importing() -> bool:
    return "importlib" in sys._getframe(3).f_code.co_filename


def _words(args: Any) -> list[str]:
    return [os.fsdecode(word) for word in args]


def _seen(event: str, args: tuple[Any, ...]) -> dict[str, Any] | None:
    if event == "subprocess.Popen":
        words = [args[1]] if isinstance(args[1], str) else _words(args[1])
        return {"program": os.fsdecode(args[0] or words[0]), "words": words}
    if event in ("os.posix_spawn", "os.exec"):
        return {"program": os.fsdecode(args[0]), "words": _words(args[1])}
    if event in ("os.system", "pty.spawn", "os.startfile"):
        return {"program": str(args[0]), "words": []}
    if event == "pickle.find_class":
        return {"pickle": f"{args[0]}.{args[1]}"}
    if event in ("marshal.loads", "marshal.load"):
        # An import reads compiled modules by it.
        return None if _importing() else {"pickle": event}
    if event == "open" and isinstance(args[0], (str, bytes)):
        name = os.path.basename(os.fsdecode(args[0]))
        if name in _FILES or name.endswith(_PICKLES):
            return {"file": os.fsdecode(args[0])}
    return None


def install(file: str) -> None:
    """Note from now on."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def note(event: str, args: tuple[Any, ...]) -> None:
        seen = _seen(event, args)
        module = _module() if seen else ""
        if seen and module:
            line = {"module": module, "event": event, **seen}
            os.write(descriptor, json.dumps(line).encode() + b"\n")

    sys.addaudithook(note)


if os.environ.get("NOTED_STARTS"):
    install(os.environ["NOTED_STARTS"])
