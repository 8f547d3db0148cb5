"""docs/reference/azure-ml.md: what each client can do, made of what each client did.

Owns: the page's words, and one row an operation from the recorded results.
Leaves: the recording to run_operations.py.
Always: a cell tells what was seen; what an operation is expected to do is not asked here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from operations import WORKS, Operation

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "azure-ml.md"
UPDATE = "TORCHYARD_WRITE_AZURE_PAGE"

_HEAD = """# Azure ML's own clients on torchyard

Code that was written for Azure ML runs unchanged: `eval "$(yard client-env)"`, then the script,
the notebook or the job file as it is. See the guide [azure-ml-code](../guides/azure-ml-code.md).

Made by `make azure-page` of what the clients did in `make test-azure`; never written by hand.
"works": the client's call does here what it does in Azure. "refused": torchyard does not have it,
says so in Azure's own form of an error with a hint, and leaves nothing half done. "an error, as in
Azure": Azure refuses it, too.
"""


def page(
    operations: Sequence[Operation], results: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> str:
    """
    Args:
        results: by client and operation, as run_operations.py writes them.
    """
    clients = sorted(results, reverse=True)
    parts = [_HEAD]
    for section in dict.fromkeys(one.section for one in operations):
        parts.append(f"\n## {section}\n")
        parts.append(_row(["operation", *(_short(client) for client in clients)]))
        parts.append(_row(["---"] * (len(clients) + 1)))
        for one in operations:
            if one.section == section:
                cells = [_cell(one, client, results[client].get(one.key)) for client in clients]
                parts.append(_row([one.call, *cells]))
    return "\n".join(parts) + "\n"


def write_if_asked(text: str) -> None:
    """`make azure-page` asks by a variable."""
    if os.environ.get(UPDATE):
        PAGE.write_text(text)


def _cell(operation: Operation, client: str, found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "not tried"
    if not found["ok"] and client in operation.faulty:
        return f"the client's own fault: {operation.faulty[client]}"
    if not found["ok"]:
        return operation.outcome if operation.outcome != WORKS else "**fails**"
    return f"works: {operation.how}" if operation.how else "works"


def _short(client: str) -> str:
    name, _, version = client.rpartition("-")
    return f"{name} {version}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
