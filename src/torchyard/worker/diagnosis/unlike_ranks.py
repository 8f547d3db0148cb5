"""Tell which rank's model is another one than that of the other ranks, by what these say of it.

Owns: reading the errors of DistributedDataParallel, whose order says which ranks are alike.
Leaves: ranks that call other collectives to shared/collectives.py.
Always: nobody is blamed unless two ranks or more are alike and one is not, and the errors number
the ranks as the script does: within a process group of some ranks they count from 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_MISMATCH = re.compile(
    r"same model across all ranks, but Rank (?P<own>\d{1,6}) has (?P<has>\d{1,12}) params, while "
    r"rank (?P<other>\d{1,6}) has inconsistent (?P<others>\d{1,12})"
)
_MOST_RANKS = 4096


def other_model(errors: Iterable[tuple[int, str]], told: str) -> str:
    """Say which one rank's model has another number of parameters; empty if nobody can.

    A rank compares itself with all others in their order, and names the first one that differs: the
    ranks before that one are as it is.

    Args:
        errors: of the ranks that failed, each with the rank that its script saw.
        told: the error that would be told; another kind explains itself.
    """
    if _MISMATCH.search(told) is None:
        return ""
    params: dict[int, str] = {}
    for script_rank, error in errors:
        match = _MISMATCH.search(error)
        if match is None:
            continue
        if int(match["own"]) != script_rank:
            return ""  # a group's own numbers
        other = int(match["other"])
        alike = (*range(min(other, _MOST_RANKS)), script_rank)
        params |= {**dict.fromkeys(alike, match["has"]), other: match["others"]}
    counts = Counter(params.values())
    odd = [rank for rank, number in params.items() if counts[number] == 1]
    if len(counts) != 2 or len(odd) != 1:
        return ""
    (usual, _), (unlike, _) = counts.most_common(2)
    return (
        f"rank {odd[0]} has a model of {unlike} parameters (tensors) where the others have {usual}"
    )
