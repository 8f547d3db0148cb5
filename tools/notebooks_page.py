"""The page docs/transcripts/notebooks.md, from what run_notebooks.py has written down.

    python tools/notebooks_page.py WORK > docs/transcripts/notebooks.md

Owns: the table and its counts.
Leaves: running to run_notebooks.py, the reasons to notebooks.yml.
Always: cells and jobs are those of the results; a notebook without results is not in the table.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from run_notebooks import Suite, is_whole, passed_cells, read_suites

CAUSES = {
    "network": "a site that can't be reached here",
    "user": "something that only its user has",
    "notebook": "its own text",
    "not built": "not built",
    "ours": "a fault of torchyard's",
}
_TITLES = {
    "sdk-v1": "Azure/MachineLearningNotebooks, SDK v1",
    "sdk-v2": "Azure/azureml-examples, SDK v2",
}


def rows(suite: Suite, folder: Path) -> list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Each notebook that was run: its path, its results, its entry in the list."""
    entries = []
    for notebook, entry in suite.notebooks.items():
        file = folder / suite.name / f"{notebook.replace('/', '--')}.json"
        if file.exists():
            entries.append((notebook, json.loads(file.read_text()), entry))
    return entries


def section(suite: Suite, folder: Path) -> str:
    run = rows(suite, folder)
    whole = sum(is_whole(document) for _, document, _ in run)
    causes = Counter(entry.get("cause", "") for _, document, entry in run if not is_whole(document))
    counts = "; ".join(f"{number} for {CAUSES[cause]}" for cause, number in causes.items() if cause)
    placeholders = ", ".join(f"`{old}` → `{new}`" for old, new in suite.placeholders.items())
    lines = [
        f"## {_TITLES[suite.name]}",
        "",
        f"Commit {suite.commit}. Of {len(run)} notebooks {whole} ran whole. "
        f"Not whole: {counts}. Filled in: {placeholders}.",
        "",
        "| notebook | cells | jobs | why not whole |",
        "|---|---|---|---|",
    ]
    lines += [_row(notebook, document, entry) for notebook, document, entry in run]
    return "\n".join(lines)


def _row(notebook: str, document: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    cells = f"{passed_cells(document)}/{document.get('cells', '?')}"
    ended = Counter(document.get("jobs", {}).values())
    jobs = ", ".join(f"{number} {status}" for status, number in sorted(ended.items()))
    reason = "" if is_whole(document) else str(entry.get("reason", "not found out yet"))
    cause = entry.get("cause", "")
    why = f"{cause}: {reason}" if reason and cause else reason
    return f"| `{notebook}` | {cells} | {jobs} | {why} |"


_PARAGRAPHS = (
    "Each notebook ran with Azure ML's real clients against one server per SDK, by "
    "`make notebooks`: all code cells in order, in one IPython, up to the first that fails. "
    "Nothing of a cell is edited but the placeholders that a user fills in. The clients have "
    "Python 3.10, as Azure's compute instances do; the workspace rehearses GPUs on the CPU. "
    "Before the first cell:",
    "    $ yard workspace update --rehearse-on-cpu\n"
    "    $ yard workspace config --path .\n"
    "    $ yard client-env --run -- jupyter lab       # for SDK v2 with --mlflow",
    "The column of jobs says how the jobs ended that the notebook submitted; some notebooks "
    "don't wait for theirs. The server had the extras `azure` and `smb`. `heart.csv` of "
    "azuremlexampledata.blob.core.windows.net is data of the same columns, made here and served "
    "in its place. `model_management` expects a third version of its model, which its second run "
    "makes.",
)


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]) / "results"
    sections = [section(suite, folder) for suite in read_suites().values()]
    title = "# Public notebooks, whole and unmodified"
    print("\n\n".join([title, *_PARAGRAPHS, *sections]))


if __name__ == "__main__":
    main(sys.argv[1:])
