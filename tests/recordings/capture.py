"""Keeps what tests read, as a plugin: `pytest -p recordings.capture … ` writes `kept/`.

Owns: asking each reader's module for its reader by a wrapper.
Leaves: which readers there are to readers.py.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recordings.inputs import KEPT
from recordings.readers import READERS
from torchyard.compute import documents as computes
from torchyard.data import kinds as datastores
from torchyard.workspaces import actions as workspaces

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
    modules = {"compute": computes, "datastore": datastores, "workspace": workspaces}
    for kind, read in READERS.items():
        if kind != "connection":
            module = modules.get(kind) or sys.modules[read.__module__]
            name = "read_document" if hasattr(module, "read_document") else "read"
            setattr(module, name, _recording(kind, getattr(module, name)))


def pytest_unconfigure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    for kind, texts in _seen.items():
        file = Path(KEPT) / f"{kind.replace(' ', '_')}.{worker}.part"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{text}\n" for text in sorted(texts)), encoding="utf-8")
