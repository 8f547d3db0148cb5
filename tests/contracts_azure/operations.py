"""What a client is made to do: a list of operations, each a function of one `World`.

Owns: the list that the tests, the client's process and the page of operations share.
Leaves: what is done to the modules `*_operations.py`, which register themselves here.
Always: importing an operation imports no client: only its function does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What torchyard does not have yet; and what Azure refuses as well.
WORKS, REFUSED, ERROR = "works", "refused", "an error, as in Azure"

# The variable that names a token of the server's whose time is over.
EXPIRED = "TEST_EXPIRED_TOKEN"


@dataclass
class World:
    """What the operations of one client process share.

    `suffix` tells this client's names from another's on the same server; `seen` is what earlier
    operations left to later ones.
    """

    client: str
    folder: Path
    suffix: str
    seen: dict[str, Any] = field(default_factory=dict)
    _ml: Any = None

    @property
    def ml(self) -> Any:
        """An `MLClient`, made once."""
        if self._ml is None:
            from azure.ai.ml import MLClient
            from azure.identity import DefaultAzureCredential

            config = self.folder / ".azureml" / "config.json"
            self._ml = MLClient.from_config(DefaultAzureCredential(), path=str(config))
        return self._ml

    def name(self, word: str) -> str:
        return f"{word}-{self.suffix}"

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file


@dataclass(frozen=True)
class Operation:
    """One row of the page.

    `how` is how it differs from Azure, or for what is refused a word that the refusal must say.
    `faulty` are clients that fail at it by themselves, and why.
    """

    section: str
    call: str
    run: Callable[[World], Any]
    outcome: str = WORKS
    how: str = ""
    faulty: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.section}: {self.call}"


OPERATIONS: list[Operation] = []


def operation(
    section: str,
    call: str,
    outcome: str = WORKS,
    how: str = "",
    faulty: Mapping[str, str] | None = None,
    into: list[Operation] = OPERATIONS,
) -> Callable[[Callable[[World], Any]], Callable[[World], Any]]:
    """Put the function into the list, in the order in which the process will do them.

    The function asserts what it finds; what it returns is recorded as JSON.
    """

    def add(run: Callable[[World], Any]) -> Callable[[World], Any]:
        made = Operation(section, call, run, outcome, how, faulty or {})
        assert made.key not in {row.key for row in into}, made.key
        into.append(made)
        return run

    return add
