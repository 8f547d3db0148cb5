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
    earlier_cells = _cells(before)
    sections = dict.fromkeys(row.section for _, there in reversed(_SIDES) for row in there)
    parts = [_HEAD]
    for section in sections:
        parts.append(f"\n## {section}\n")
        parts.append(_row(_titles()))
        parts.append(_row(["---"] * len(_titles())))
        for pair in _pairs(section):
            cells = []
            for (clients, _), row in zip(_SIDES, pair, strict=True):
                cells.append(row.call if row else "")
                cells += [_cell(row, client, results, earlier_cells) for client in clients]
            parts.append(_row(cells))
    return "\n".join(parts) + "\n"


def write_if_asked(text: str) -> None:
    """`make azure-page` asks by a variable."""
    if os.environ.get(UPDATE):
        PAGE.write_text(text)


def _pairs(section: str) -> Iterator[tuple[Operation | None, Operation | None]]:
    """Operations of v1 and v2 that are alike; those that have no like after them."""
    first, second = ([row for row in there if row.section == section] for _, there in _SIDES)
    alike = EQUIVALENTS.get(section, {})
    for two in second:
        same_call = [row for row in first if alike.get(row.call) == two.call]
        yield (same_call[0] if same_call else None), two
        yield from ((row, None) for row in same_call[1:])
    yield from ((row, None) for row in first if row.call not in alike)


def _cell(
    row: Operation | None,
    client: str,
    results: Results,
    earlier_cells: Mapping[tuple[str, str], str],
) -> str:
    if row is None:
        return ""
    if client not in results:
        return earlier_cells.get((client, row.key), NOT_TRIED)
    result = results[client].get(row.key)
    if result is None:
        return NOT_TRIED
    if not result["ok"] and client in row.faulty:
        return f"the client's own fault: {row.faulty[client]}"
    if not result["ok"]:
        return row.outcome if row.outcome != WORKS else "**fails**"
    return f"works: {row.how}" if row.how else "works"


def _cells(text: str) -> dict[tuple[str, str], str]:
    """By client and operation, what a page says."""
    cell_of = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != len(_titles()):
            continue
        for clients, _ in _SIDES:
            call, texts, cells = cells[0], cells[1 : 1 + len(clients)], cells[1 + len(clients) :]
            key = f"{section}: {call}"
            cell_of.update({(who, key): cell for who, cell in zip(clients, texts, strict=True)})
    return cell_of


def _titles() -> list[str]:
    names = ("SDK v1", "SDK v2")
    pairs = zip(names, _SIDES, strict=True)
    return [word for name, (clients, _) in pairs for word in (name, *map(_short, clients))]


def _short(client: str) -> str:
    name, _, version = client.rpartition("-")
    return f"{name} {version}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
