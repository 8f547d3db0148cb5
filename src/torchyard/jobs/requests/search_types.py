"""What a search asks for: conditions, orders, a page.

Owns: these types.
Leaves: the language that they are written in to mlflow/search.py, SQL to run_search.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Condition:
    """One comparison; `value` is a number, a text or a tuple of texts.

    `kind` is metric, param, tag, attribute or dataset.
    """

    kind: str
    key: str
    operator: str
    value: Any = None


@dataclass(frozen=True)
class Order:
    kind: str
    key: str
    descending: bool


@dataclass(frozen=True)
class View:
    """Which page of what; `deleted` None takes both."""

    conditions: Sequence[Condition] = ()
    orders: Sequence[Order] = ()
    deleted: bool | None = False
    offset: int = 0
    limit: int | None = None
