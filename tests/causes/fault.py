"""One fault of the corpus: a folder with a script that goes wrong and what a person must be told.

Owns: reading `fault.yml`, finding the marked line of the script.
Leaves: judging what a launcher said to score.py; running to the launchers' own modules.
Always: an unknown key is an error, so that no expectation is left out by a typing error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
OPEN, HELD_BACK = HERE / "faults", HERE / "held_back"
FILE = "fault.yml"
# Follows the line that is at fault, or each of several of which any may be named.
MARK = re.compile(r"# here\b")
ENDS = ("Failed", "Completed", "stalls")
ENVIRONMENTS = ("python", "torch", "mpi", "deepspeed")
KINDS = (
    "exception", "exit", "signal", "memory", "collective", "loader", "stall", "disk", "network",
    "rendezvous", "environment", "command", "gpu", "thread", "teardown", "hidden", "silent", "log",
)  # fmt: skip


@dataclass(frozen=True)
class Right:
    """What a person must be told.

    `rank` and `file` are None where nobody is to blame or no line is. `code` is torchyard's, or
    several with `|` between; other launchers have none. `cause` is a pattern, whatever the case,
    that the words about the cause match. `collective` is the operation's name, such as
    `all_reduce`.
    """

    ends: str
    cause: str
    rank: int | None = None
    node: int | None = None
    file: str | None = None
    code: str = ""
    collective: str | None = None


@dataclass(frozen=True)
class Fault:
    """`command` is what each of `nodes` x `processes` ranks runs, in the fault's folder.

    `properties` and `limits` are the job's, `variables` its environment's. `never` are patterns of
    words that put the blame on the wrong one. `true_pace` leaves pauses as long as people have
    them, where the corpus shortens them otherwise.
    """

    folder: Path
    about: str
    kind: str
    right: Right
    command: str = "python train.py"
    nodes: int = 1
    processes: int = 1
    environment: str = "torch"
    properties: dict[str, str] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    never: tuple[str, ...] = ()
    true_pace: bool = False

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def lines(self) -> tuple[int, ...]:
        """The marked lines of the file that is at fault, from 1."""
        if self.right.file is None:
            return ()
        text = (self.folder / self.right.file).read_text(encoding="utf-8", errors="replace")
        return tuple(
            number for number, line in enumerate(text.splitlines(), 1) if MARK.search(line)
        )


def read(folder: Path) -> Fault:
    """
    Raises:
        ValueError: the file of the fault is not as it must be; says where.
    """
    document = yaml.safe_load((folder / FILE).read_text(encoding="utf-8"))
    right = document.pop("right")
    _refuse_unknown(folder, document, Fault)
    _refuse_unknown(folder, right, Right)
    document["never"] = tuple(document.get("never", ()))
    fault = Fault(folder=folder, right=Right(**right), **document)
    for what, value, allowed in (
        ("kind", fault.kind, KINDS),
        ("right.ends", fault.right.ends, ENDS),
        ("environment", fault.environment, ENVIRONMENTS),
    ):
        if value not in allowed:
            raise ValueError(f"{folder / FILE}: `{what}: {value}` is none of {', '.join(allowed)}")
    for pattern in (fault.right.cause, *fault.never):
        re.compile(pattern)
    if fault.right.file is not None and not fault.lines:
        raise ValueError(f"{folder / fault.right.file}: no line ends with `# here`")
    return fault


def all_in(folder: Path, names: Sequence[str] = ()) -> list[Fault]:
    """The faults of a folder, or those of these names, in order."""
    return [read(file.parent) for file in _files(folder) if not names or file.parent.name in names]


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob(f"*/{FILE}"))


def _refuse_unknown(folder: Path, document: dict[str, Any], kind: type) -> None:
    known = {each.name for each in fields(kind)}
    if unknown := set(document) - known:
        raise ValueError(f"{folder / FILE}: no key of a fault: {', '.join(sorted(unknown))}")
