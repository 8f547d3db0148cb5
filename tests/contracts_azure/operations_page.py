"""docs/reference/azure-ml.md: what each client can do, made of what each client did.

Owns: the page's words, and one row for what SDK v1 and SDK v2 do alike.
Leaves: the recording to run_operations.py, which operations are alike to v1_equivalents.py.
Always: a cell tells what was seen; what an operation is expected to do is not asked here. The
cells of clients that were not run are taken over from the page as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import all_operations
import client_venvs
import v1_operations
from operations import WORKS, Operation
from v1_equivalents import EQUIVALENTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "azure-ml.md"
UPDATE = "TORCHYARD_WRITE_AZURE_PAGE"
NOT_TRIED = "not tried"

_HEAD = """# Azure ML's own clients on torchyard

Code that was written for Azure ML runs unchanged: `eval "$(yard client-env)"`, then the script,
the notebook or the job file as it is. See the guide [azure-ml-code](../guides/azure-ml-code.md).

Each row has an operation of SDK v1 (azureml-core) at the left and what does the same in SDK v2
(azure-ai-ml) at the right; one side is empty where the other SDK alone has it, or where both need
no row of their own.

Made by `make azure-page` of what the clients did in `make test-azure`; never written by hand.
"works": the client's call does here what it does in Azure. "refused": torchyard does not have it,
says so in Azure's own form of an error with a hint, and leaves nothing half done. "an error, as in
Azure": Azure refuses it, too.
"""

Results = Mapping[str, Mapping[str, Mapping[str, Any]]]
_V1, _V2 = (client_venvs.SDK_V1,), client_venvs.CLIENTS
_SIDES = ((_V1, v1_operations.OPERATIONS), (_V2, all_operations.OPERATIONS))


def page(results: Results, before: str) -> str:
    """
    Args:
        results: by client and operation, as run_operations.py writes them, of any clients.
        before: the page as it is.
    """
    known = _cells(before)
    sections = dict.fromkeys(one.section for _, there in reversed(_SIDES) for one in there)
    parts = [_HEAD]
    for section in sections:
        parts.append(f"\n## {section}\n")
        parts.append(_row(_titles()))
        parts.append(_row(["---"] * len(_titles())))
        for pair in _pairs(section):
            cells = []
            for (clients, _), one in zip(_SIDES, pair, strict=True):
                cells.append(one.call if one else "")
                cells += [_cell(one, client, results, known) for client in clients]
            parts.append(_row(cells))
    return "\n".join(parts) + "\n"


def write_if_asked(text: str) -> None:
    """`make azure-page` asks by a variable."""
    if os.environ.get(UPDATE):
        PAGE.write_text(text)


def _pairs(section: str) -> Iterator[tuple[Operation | None, Operation | None]]:
    """Operations of v1 and v2 that are alike; those that have no like after them."""
    first, second = ([one for one in there if one.section == section] for _, there in _SIDES)
    alike = EQUIVALENTS.get(section, {})
    for two in second:
        own = [one for one in first if alike.get(one.call) == two.call]
        yield (own[0] if own else None), two
        yield from ((one, None) for one in own[1:])
    yield from ((one, None) for one in first if one.call not in alike)


def _cell(
    one: Operation | None, client: str, results: Results, known: Mapping[tuple[str, str], str]
) -> str:
    if one is None:
        return ""
    if client not in results:
        return known.get((client, one.key), NOT_TRIED)
    found = results[client].get(one.key)
    if found is None:
        return NOT_TRIED
    if not found["ok"] and client in one.faulty:
        return f"the client's own fault: {one.faulty[client]}"
    if not found["ok"]:
        return one.outcome if one.outcome != WORKS else "**fails**"
    return f"works: {one.how}" if one.how else "works"


def _cells(text: str) -> dict[tuple[str, str], str]:
    """By client and operation, what a page says."""
    found = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [one.strip() for one in line.split("|")[1:-1]]
        if len(cells) != len(_titles()):
            continue
        for clients, _ in _SIDES:
            call, told, cells = cells[0], cells[1 : 1 + len(clients)], cells[1 + len(clients) :]
            key = f"{section}: {call}"
            found.update({(who, key): cell for who, cell in zip(clients, told, strict=True)})
    return found


def _titles() -> list[str]:
    names = ("SDK v1", "SDK v2")
    pairs = zip(names, _SIDES, strict=True)
    return [word for name, (clients, _) in pairs for word in (name, *map(_short, clients))]


def _short(client: str) -> str:
    name, _, version = client.rpartition("-")
    return f"{name} {version}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
