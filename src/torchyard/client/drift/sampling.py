"""A random sample of rows of unknown number.

Owns: which rows are kept.
Leaves: reading them to tables.py.
Always: each row has the same chance; the same rows in the same order and the same seed give the
same sample.

Source: Vitter, Random sampling with a reservoir, 1985 (algorithm R).
"""

from __future__ import annotations

import random
from typing import Generic, TypeVar

_Row = TypeVar("_Row")


class Reservoir(Generic[_Row]):
    """Keeps at most `most` of the rows that are added; `seen` counts all of them."""

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._random = random.Random(seed)
        self.rows: list[_Row] = []
        self.seen = 0

    def add(self, row: _Row) -> None:
        self.seen += 1
        if len(self.rows) < self._size:
            self.rows.append(row)
            return
        index = self._random.randrange(self.seen)
        if index < self._size:
            self.rows[index] = row

    @property
    def is_sampled(self) -> bool:
        return self.seen > len(self.rows)
