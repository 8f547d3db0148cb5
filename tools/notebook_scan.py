"""Which notebooks of a repository the list must have, by a scan of their text.

    python tools/notebook_scan.py SUITE REPOSITORY.git

Owns: the criterion of `scan` in notebooks.yml, and whether the list holds what it finds.
Leaves: running them to run_notebooks.py.
Always: the criterion is written beside the list and on the page; a notebook that it finds is in
    the list, whether it runs or not.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Scan:
    """`paths` matches a notebook's path; `without` matches nothing in its cells.

    `cells`: `code` for the code cells alone, `all` also for the texts between them.
    """

    paths: str
    cells: str
    without: str

    def finds(self, path: str, notebook: Mapping[str, Any]) -> bool:
        if not re.match(self.paths, path):
            return False
        text = "\n".join(
            "".join(cell["source"])
            for cell in notebook.get("cells", [])
            if self.cells == "all" or cell["cell_type"] == self.cells
        )
        return re.search(self.without, text) is None


def found(scan: Scan, git_folder: Path) -> list[str]:
    """The notebooks of HEAD that the scan finds; those that a mirror lacks are left out."""
    return [path for path, notebook in _notebooks(git_folder) if scan.finds(path, notebook)]


def _notebooks(git_folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    git = ["git", "--git-dir", str(git_folder)]
    listing = [*git, "ls-tree", "-r", "-z", "--name-only", "HEAD"]
    paths = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    for path in filter(re.compile(r".*\.ipynb").fullmatch, paths.split("\0")):
        shown = subprocess.run([*git, "show", f"HEAD:{path}"], capture_output=True)
        try:
            yield path, json.loads(shown.stdout)
        except ValueError:
            continue


def main(arguments: list[str]) -> int:
    from run_notebooks import read_suites

    suite = read_suites()[arguments[0]]
    expected, listed = set(found(suite.scan, Path(arguments[1]))), set(suite.scanned)
    for path in sorted(expected - listed):
        print(f"not listed: {path}")
    for path in sorted(listed - expected):
        print(f"not found by the scan: {path}")
    print(f"{len(expected)} found, {len(listed)} listed")
    return 0 if expected == listed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
