"""Keeps what tests read, as a plugin: `pytest -p recordings.capture … ` writes `kept/`.

Owns: asking each reader's module for its reader by a wrapper.
Leaves: which readers there are to readers.py.
"""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recordings.inputs import KEPT
from recordings.readers import READERS

_LONGEST = 4_000
_seen: dict[str, set[str]] = {}


def _recording(kind: str, read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def recorded(document: Any, *rest: Any, **options: Any) -> Any:
        text = repr(document)
        if len(text) <= _LONGEST and _is_literal(text, document):
            _seen.setdefault(kind, set()).add(text)
        return read(document, *rest, **options)

    return recorded


def _is_literal(text: str, document: Any) -> bool:
    try:
        return bool(ast.literal_eval(text) == document)
    except (ValueError, SyntaxError):
        return False


def pytest_configure(config: pytest.Config) -> None:
    import importlib

    from recordings import readers

    for kind, read in READERS.items():
        name = "read_document" if kind in ("datastore", "workspace") else read.__name__
        if kind == "compute":
            module, name = readers.computes, "read"
        elif kind in ("datastore", "workspace"):
            module = readers.datastores if kind == "datastore" else readers.workspaces
        elif kind == "connection":
            continue
        else:
            module = importlib.import_module(read.__module__)
        setattr(module, name, _recording(kind, getattr(module, name)))


def pytest_unconfigure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    for kind, texts in _seen.items():
        file = Path(KEPT) / f"{kind.replace(' ', '_')}.{worker}.part"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{text}\n" for text in sorted(texts)), encoding="utf-8")
