"""Tell which rank's model is another one than that of the other ranks, by what these say of it.

Owns: reading the errors of DistributedDataParallel, whose order says which ranks are alike.
Leaves: ranks that call other collectives to shared/collectives.py.
Always: nobody is blamed unless two ranks or more are alike and one is not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_MISMATCH = re.compile(
    r"same model across all ranks, but Rank (?P<own>\d{1,6}) has (?P<has>\d{1,12}) params, while "
    r"rank (?P<other>\d{1,6}) has inconsistent (?P<others>\d{1,12})"
)
_MOST_RANKS = 4096


@dataclass(frozen=True)
class UnlikeRank:
    """The rank, and the sentence about it."""

    rank: int
    sentence: str


def other_model(errors: Iterable[str], told: str) -> UnlikeRank | None:
    """The one rank whose model has another number of parameters.

    A rank compares itself with all others in their order, and names the first one that differs: the
    ranks before that one are as it is.

    Args:
        errors: of the ranks that failed.
        told: the error that would be told; None is returned for one of another kind.
    """
    if _MISMATCH.search(told) is None:
        return None
    params: dict[int, str] = {}
    for match in filter(None, map(_MISMATCH.search, errors)):
        other = int(match["other"])
        alike = (*range(min(other, _MOST_RANKS)), int(match["own"]))
        params |= {**dict.fromkeys(alike, match["has"]), other: match["others"]}
    counts = Counter(params.values())
    odd = [rank for rank, number in params.items() if counts[number] == 1]
    if len(counts) != 2 or len(odd) != 1:
        return None
    (usual, _), (unlike, _) = counts.most_common(2)
    return UnlikeRank(
        odd[0],
        f"rank {odd[0]} has a model of {unlike} parameters (tensors) where the others have {usual}",
    )
