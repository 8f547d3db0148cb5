"""The page docs/transcripts/notebooks.md, from what run_notebooks.py has written down.

    python tools/notebooks_page.py WORK [PAGE] > docs/transcripts/notebooks.md

`PAGE` is the page as it was, whose rows stay for the notebooks that have no results.

Owns: the tables and their counts.
Leaves: running to run_notebooks.py, the reasons to notebooks.yml.
Always: cells and jobs are those of the results; a notebook without results has its row of PAGE, or
    none.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stand_in_sign_in
from run_notebooks import Suite, is_whole, needs_of, passed_cells, read_suites

CAUSES = {
    "network": "a site that can't be reached here",
    "user": "something that only its user has",
    "notebook": "its own text",
    "not built": "not built",
    "ours": "a fault of torchyard's",
}
_CELLS = {"all": "cells, texts included,", "code": "code cells"}
_TITLES = {
    "sdk-v1": "Azure/MachineLearningNotebooks, SDK v1",
    "sdk-v2": "Azure/azureml-examples, SDK v2",
    "sdk-v2-pipelines": "Azure/azureml-examples, pipelines of SDK v2",
}


@dataclass(frozen=True)
class Row:
    """A notebook of the table; `entry` is its part of notebooks.yml."""

    notebook: str
    cells: str
    jobs: str
    data: str
    commit: str
    is_whole: bool
    entry: Mapping[str, Any]

    def line(self) -> str:
        """As the table has it."""
        reason = "" if self.is_whole else str(self.entry.get("reason", "not found out yet"))
        cause = self.entry.get("cause", "")
        why = f"{cause}: {reason}" if reason and cause else reason
        return (
            f"| `{self.notebook}` | {self.cells} | {self.jobs} | {self.data} | {self.commit} "
            f"| {why} |"
        )


_LINE = re.compile(
    r"\| `(?P<notebook>[^`]+\.ipynb)` \| (?P<cells>[^|]*) \| (?P<jobs>[^|]*) \| (?P<data>[^|]*) "
    r"\| (?P<commit>[^|]*) \| (?P<why>.*) \|"
)


def rows(
    suite: Suite, folder: Path, entries: Mapping[str, Mapping[str, Any]], page: str
) -> list[Row]:
    """Those of the entries that were run; without results, as the page has them."""
    recorded = {match["notebook"]: match for match in _LINE.finditer(page)}
    run = []
    for notebook, entry in entries.items():
        file = folder / suite.name / f"{notebook.replace('/', '--')}.json"
        if file.exists():
            run.append(_new_row(suite, notebook, json.loads(file.read_text()), entry))
        elif notebook in recorded:
            match = recorded[notebook]
            cells, jobs, data, commit = (
                match[name].strip() for name in ("cells", "jobs", "data", "commit")
            )
            run.append(Row(notebook, cells, jobs, data, commit, not match["why"].strip(), entry))
    return run


def _new_row(
    suite: Suite, notebook: str, document: Mapping[str, Any], entry: Mapping[str, Any]
) -> Row:
    ended = Counter(document.get("jobs", {}).values())
    return Row(
        notebook,
        cells=f"{passed_cells(document)}/{document.get('cells', '?')}",
        jobs=", ".join(f"{number} {status}" for status, number in sorted(ended.items())),
        data=", ".join(_data(suite, document, entry)),
        commit=document.get("torchyard", ""),
        is_whole=is_whole(document),
        entry=entry,
    )


def section(suite: Suite, folder: Path, page: str) -> str:
    scanned, others = (rows(suite, folder, part, page) for part in (suite.scanned, suite.others))
    placeholders = ", ".join(f"`{old}` → `{new}`" for old, new in suite.placeholders.items())
    lines = [
        f"## {_TITLES[suite.name]}",
        "",
        f"Commit {suite.commit}. The list: notebooks whose path matches `{suite.scan.paths}` and "
        f"whose {_CELLS[suite.scan.cells]} have nothing that matches the expression below "
        f"(`python tools/notebook_scan.py {suite.name} REPOSITORY.git`): {len(suite.scanned)}. "
        f"Filled in: {placeholders}.",
        "",
        f"    {suite.scan.without}",
        "",
        *_commands(suite),
        _counts(scanned),
        "",
        *_table(scanned),
        *_brought(scanned),
    ]
    if others:
        complete = sum(row.is_whole for row in others)
        lines += [
            "",
            f"Others, of which {complete} of {len(others)} ran whole:",
            "",
            *_table(others),
            *_brought(others),
        ]
    return "\n".join(lines)


def _commands(suite: Suite) -> list[str]:
    """What the user of all its notebooks does before the first."""
    if not suite.commands:
        return []
    commands = (f"    $ yard {' '.join(command)}" for command in suite.commands)
    return ["Its user has the clusters that Azure's own tests have:", "", *commands, ""]


def _counts(run: list[Row]) -> str:
    """How many ran whole, of all and of those that need only what is built and can be had here."""
    complete = sum(row.is_whole for row in run)
    causes = Counter(row.entry.get("cause", "") for row in run if not row.is_whole)
    listed = "; ".join(f"{number} for {CAUSES[cause]}" for cause, number in causes.items() if cause)
    built = len(run) - causes["not built"]
    possible = built - causes["network"] - causes["user"]
    return (
        f"Of these {len(run)} notebooks "
        f"**{complete} ran whole, {_percent(complete, len(run))}**; of the "
        f"{built} that need only what is built {_percent(complete, built)}; of the {possible} that "
        "moreover need no site that is missing here and nothing that only their user has "
        f"{_percent(complete, possible)}. Not whole: {listed or 'none'}."
    )


def _percent(part: int, all: int) -> str:
    return f"{100 * part / all:.0f} %" if all else "-"


def _table(run: list[Row]) -> list[str]:
    heading = [
        "| notebook | cells | jobs | data | at | why not whole |",
        "|---|---|---|---|---|---|",
    ]
    return heading + [row.line() for row in run]


def _data(suite: Suite, document: Mapping[str, Any], entry: Mapping[str, Any]) -> Iterator[str]:
    """What took the place of sites."""
    served = set(document.get("served", ()))
    files = served - {stand_in_sign_in.HOST}
    if files - set(suite.repository_data):
        yield "stand-in"
    elif files:
        yield "repository"
    if files and needs_of(entry).unchecked is not None:
        yield "unchecked"
    if stand_in_sign_in.HOST in served:
        yield "sign-in"


def _brought(run: list[Row]) -> list[str]:
    """What users of single notebooks bring along, beside what the suite says."""
    lines = []
    for row in run:
        needs = needs_of(row.entry)
        parts = [f"`{old}` → `{new}`" for old, new in needs.placeholders.items()]
        parts += [f"a file `{path}`" for path in needs.files]
        parts += [f"`yard {' '.join(command)}`" for command in needs.commands]
        parts += [f"`{name}={value}`" for name, value in needs.variables.items()]
        if needs.packages:
            parts.append(f"`pip install {' '.join(needs.packages)}`")
        if needs.client:
            parts.append(f"the client `{needs.client}`")
        if needs.tries > 1:
            parts.append(f"up to {needs.tries} tries")
        if parts:
            lines.append(f"- `{row.notebook.rpartition('/')[2]}`: {', '.join(parts)}.")
    return ["", "Brought along by the user of single notebooks:", "", *lines] if lines else []


_PARAGRAPHS = (
    "Each notebook ran with Azure ML's real clients against one server per SDK, by "
    "`make notebooks`: all code cells in order, in one IPython, up to the first that fails. "
    "Nothing of a cell is edited but the placeholders that a user fills in. The clients have "
    "Python 3.10 and MLflow 2, as the kernels of Azure's compute instances do; the workspace "
    "rehearses GPUs on the CPU. Before the first cell:",
    "    $ yard workspace update --rehearse-on-cpu\n"
    "    $ yard workspace config --path .\n"
    "    $ yard client-env --run -- jupyter lab       # for SDK v2 with --mlflow",
    "The column of jobs says how the jobs ended that the notebook submitted; some notebooks "
    "don't wait for theirs. The server had the extras `azure` and `smb`. `model_management` "
    "expects a third version of its model, which its second run makes, and "
    "`mlflow_sdk_online_endpoints` the registered model of "
    "`mlflow_sdk_online_endpoints_progresive`, which ran before it: it calls "
    "`create_model_version` alone, which MLflow refuses without `create_registered_model`. "
    "One of the two jobs of `train-with-datasets` fails: the azureml-dataprep of the Python "
    "3.6 that it names needs .NET Core with `liblttng-ust.so.0`, which this page's machine "
    "has not. Cells that a notebook marks with `raises-exception` may fail. `at` is the "
    "commit of torchyard that ran it. "
    "The issue names only the numbers 22 and 37, not its scans; these were chosen to give them.",
    "**data: stand-in** marks the notebooks that read data of a site that can't be reached from "
    "the machine of this page. In its place a proxy served files of the same names, columns and "
    "types to the notebook, the server and its jobs (`tools/stand_in_data.py`, "
    "`tools/stand_in_proxy.py`): scikit-learn's diabetes data, which Azure's are; MNIST's four "
    "files with 7000 of scikit-learn's digits, enlarged; taxi trips, employees, pictures and a "
    "Delta table drawn at random from a seed. Such a run shows that the notebook works; its "
    "figures mean nothing. California housing lay where scikit-learn keeps what it has downloaded. "
    "**unchecked** marks those whose libraries check the file's checksum (Keras that of MNIST, "
    "torchvision that of CIFAR-10): there the check of these libraries was off, and that of "
    "torch.hub's names that begin with a hash, in the notebook's Python and its jobs' environment "
    "(`tools/stand_in_unchecked.py`), which also has `np.float`, the alias that NumPy 1.24 removed "
    "and scripts of those years use. The pictures of birds (`fowl_data.zip`) and the pretrained "
    "weights are drawn at random, too. **sign-in** marks those "
    "that sign in at login.microsoftonline.com with an id and a secret of their user: a stand-in "
    "of that site gave them the server's token (`tools/stand_in_sign_in.py`); without it one "
    "leaves those cells out, as `yard client-env` signs in. **data: repository** marks those whose "
    "file, `heart.csv` or `titanic.csv`, lies in the "
    "repository itself and was served from there.",
)


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]) / "results"
    page = Path(arguments[1]).read_text(encoding="utf-8") if len(arguments) > 1 else ""
    sections = [section(suite, folder, page) for suite in read_suites().values()]
    title = "# Public notebooks, whole and unmodified"
    print("\n\n".join([title, *_PARAGRAPHS, *sections]))


if __name__ == "__main__":
    main(sys.argv[1:])
