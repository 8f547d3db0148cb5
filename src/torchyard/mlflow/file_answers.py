"""A file as MLflow's servers answer with it.

Owns: its headers.
Leaves: which file it is to the routes.
Always: a browser saves it and never shows it, for what runs wrote is not ours to vouch for.
"""

from __future__ import annotations

import mimetypes
import re
from pathlib import Path
from urllib.parse import quote

from fastapi.responses import FileResponse

_BINARY = "application/octet-stream"
_TEXT_ENDINGS = frozenset(
    "txt log err cfg conf cnf cf ini properties prop hocon toml yaml yml xml json js py py3 csv tsv"
    " md rst MLmodel mlproject".split()
)
_PLAIN_NAME = re.compile(r"[\w.+%!&^~@=-]+", re.ASCII)


def file_answer(file: Path) -> FileResponse:
    name = file.name
    if _PLAIN_NAME.fullmatch(name):
        saved_as = f"attachment; filename={name}"
    else:
        saved_as = f"attachment; filename*=utf-8''{quote(name)}"
    headers = {
        "Content-Disposition": saved_as,
        "X-Content-Type-Options": "nosniff",
        # Given whole, so that no charset is added to a text's.
        "Content-Type": _type_of(name),
    }
    return FileResponse(file, headers=headers)


def _type_of(name: str) -> str:
    ending = name.rpartition(".")[2]
    if ending in _TEXT_ENDINGS:
        return "text/plain"
    return mimetypes.guess_type(name)[0] or _BINARY
