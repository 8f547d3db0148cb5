"""Compares what two versions of the readers make of the same inputs.

    python -m recordings.compare --before REVISION --count 2000 [--kind job] [--seed 1]

Owns: running both, the differences by their kind.
Leaves: which differences are meant to signed.yml.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recordings.inputs import kept, mutated
from recordings.readers import READERS, outcome

_ROOT = Path(__file__).parents[2]


def outcomes(kind: str, seed: int, count: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each input and what this version's reader makes of it: all that are kept, then mutations."""
    for document in (*kept(kind), *mutated(kind, seed, count)):
        yield document, outcome(kind, document)


def _of_revision(folder: Path, kind: str, seed: int, count: int) -> list[dict[str, Any]]:
    """The same of another version's source, in a Python of its own."""
    program = (
        "import json, sys\n"
        "from recordings.compare import outcomes\n"
        "for _, each in outcomes(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])):\n"
        "    print(json.dumps(each))\n"
    )
    paths = os.pathsep.join([str(folder / "src"), str(_ROOT / "tests")])
    words = [sys.executable, "-c", program, kind, str(seed), str(count)]
    printed = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": paths}, check=True, capture_output=True, text=True
    ).stdout
    return [json.loads(line) for line in printed.splitlines()]


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What an input's outcome had and has no longer, and the other way round; each as a line."""
    if "faults" in before and "faults" in after:
        old = {_line(fault) for fault in before["faults"]}
        new = {_line(fault) for fault in after["faults"]}
        gone, come = sorted(old - new), sorted(new - old)
        for number in range(max(len(gone), len(come))):
            yield (
                gone[number] if number < len(gone) else "",
                come[number] if number < len(come) else "",
            )
        return
    if before != after:
        yield _shown(before), _shown(after)


def _line(fault: list[Any]) -> str:
    code, at, message, hint = fault
    return f"{code} at {'.'.join(at)}: {message} | {hint}"


def _shown(result: Mapping[str, Any]) -> str:
    if "faults" in result:
        return "refused: " + "; ".join(_line(fault) for fault in result["faults"])
    return json.dumps(result)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", required=True)
    parser.add_argument("--kind", action="append", choices=READERS)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--lost", action="store_true", help="only what is told no longer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "before"
        subprocess.run(
            ["git", "worktree", "add", "--detach", "--quiet", source, arguments.before],
            cwd=_ROOT, check=True,
        )  # fmt: skip
        try:
            for kind in arguments.kind or READERS:
                _compare(source, kind, arguments)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", source], cwd=_ROOT, check=True)


def _compare(source: Path, kind: str, arguments: argparse.Namespace) -> None:
    seed, count = arguments.seed, arguments.count
    before = _of_revision(source, kind, seed, count)
    equal, found = 0, Counter[tuple[str, str]]()
    inputs: dict[tuple[str, str], Any] = {}
    for old, (document, new) in zip(before, outcomes(kind, seed, count), strict=True):
        new = json.loads(json.dumps(new))
        differences = list(_differences(old, new))
        equal += not differences
        for each in differences:
            found[each] += 1
            inputs.setdefault(each, document)
    print(f"{kind}: {len(before)} inputs, {equal} equal, {len(found)} kinds of differences")
    for each, number in found.most_common():
        if arguments.lost and not (each[0] and not each[1]) and not each[0].startswith("{"):
            if not each[1].startswith("{"):
                continue
        print(
            f"  {number} x - {each[0][:400]}\n      + {each[1][:400]}\n      {inputs[each]!r:.300}"
        )


if __name__ == "__main__":
    main()
