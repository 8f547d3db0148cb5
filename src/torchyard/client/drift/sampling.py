"""A random sample of the rows of a table whose number is unknown.

Owns: which rows are kept, the names of columns.
Leaves: reading them to tables.py.
Always: each row has the same chance; the same rows in the same order and the same seed give the
same sample.

Source: Vitter, Random sampling with a reservoir, 1985 (algorithm R).
"""

from __future__ import annotations

import random
from typing import Any

from torchyard.client.drift.payloads import Row

_MOST_COLUMNS = 2000


class SampledTable:
    """Keeps at most `size` of the rows that are added; `seen` counts all of them."""

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._random = random.Random(seed)
        self._indexes: dict[str, int] = {}
        # Tuples are small: callers of the endpoint choose how many columns a row has.
        self._rows: list[tuple[Any, ...]] = []
        self.seen = 0

    def add(self, row: Row) -> None:
        for name in row:
            if name not in self._indexes and len(self._indexes) < _MOST_COLUMNS:
                self._indexes[str(name)] = len(self._indexes)
        values = tuple(row.get(name) for name in self._indexes)
        self.seen += 1
        if len(self._rows) < self._size:
            self._rows.append(values)
        elif (index := self._random.randrange(self.seen)) < self._size:
            self._rows[index] = values

    @property
    def names(self) -> list[str]:
        return list(self._indexes)

    @property
    def used(self) -> int:
        return len(self._rows)

    def column(self, name: str) -> list[Any]:
        """The values of the rows that were kept, None where a row has none."""
        index = self._indexes[name]
        return [row[index] if index < len(row) else None for row in self._rows]
