"""Tell of a job that succeeded although its work may have been in vain.

Owns: figures in its log that turned into NaN, or that never changed; ranks that printed and logged
nothing; a command that asks for a GPU where there is none.
Leaves: Pythons that failed in a rank that succeeded to hidden_failures.py.
Always: a notice states what the log shows and no guess about it; of each rank only the end of its
log is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile

from torchyard.worker.diagnosis import artifacts
from torchyard.worker.launch.ranks import Rank

_FIGURE = re.compile(
    r"(?<![\w.])(?P<name>[A-Za-z][\w/.-]{0,40})\s{0,3}[=:]?\s{0,3}"
    r"(?P<value>[-+]?(?:nan|inf(?:inity)?|\d{1,20}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?))(?![\w.%])",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"(?<![\w.])(?P<name>step|epoch|batch|iteration|iter)\s{0,3}[=:]?\s{0,3}(?P<number>\d{1,12})"
    r"(?:\s?(?:/|of)\s?(?P<of>\d{1,12}))?(?![\w.])",
    re.IGNORECASE,
)
_LEAST_AT_END, _LEAST_EQUAL, _LEAST_DIGITS = 3, 20, 4
# Of a longer log only the end is read.
_LEAST_CUT = 60_000
_LONGEST_LINE, _SHOWN_LINE = 2_000, 80
_MOST_TOLD = 3
_ASKS_FOR_GPU = re.compile(
    r"--?[\w-]{1,30}[= ](?:gpus?|cuda(?::\d{1,3})?)(?![\w.-])", re.IGNORECASE
)


def notices(
    ranks: Sequence[Rank], *, command: str, is_whole: bool, has_logged: bool, has_gpus: bool
) -> Iterator[str]:
    """One sentence each.

    Args:
        is_whole: the job has no ranks but these.
        has_logged: a rank logged a metric or wrote an output.
        has_gpus: the node has a GPU, or the job does as if.
    """
    logs = {rank: artifacts.log_tail(rank.log) for rank in ranks}
    if is_whole and len(ranks) > 1 and not has_logged and not any(logs.values()):
        yield (
            "nothing was printed or logged by any rank, and ./outputs is empty: did the script do "
            "its work"
        )
    asked = _ASKS_FOR_GPU.search(command)
    if asked and not has_gpus and any(rank.rank == 0 for rank in ranks):
        yield f"the command asks for a GPU (`{asked[0]}`), but no GPU was used: this node has none"
    yield from _unequal_steps({rank.rank: text for rank, text in logs.items()})
    sentences = (
        f"rank {rank.rank}: {sentence} ({rank.log_name})"
        for rank, text in logs.items()
        for sentence in _of_log(text)
    )
    yield from islice(sentences, _MOST_TOLD)


def _unequal_steps(logs: Mapping[int, str]) -> Iterator[str]:
    """Of ranks that print the same steps the one that came less far; how far of all they came."""
    steps = {rank: list(_STEP.finditer(text)) for rank, text in logs.items()}
    numbers = {rank: [int(step["number"]) for step in each] for rank, each in steps.items()}
    least = min(numbers, key=lambda rank: len(numbers[rank]), default=0)
    own = numbers.get(least, [])
    others = [each for rank, each in numbers.items() if rank != least]
    if own and others and all(each[: len(own)] == own for each in others):
        furthest = {each[-1] for each in others}
        if len(furthest) == 1 and (most := furthest.pop()) > own[-1] + _stride(own):
            yield (
                f"rank {least} ended early: its last {steps[least][-1]['name']} is {own[-1]}, "
                f"that of the others {most}"
            )
    rank = next((rank for rank, each in steps.items() if each), None)
    if rank is None:
        return
    last, number = steps[rank][-1], numbers[rank][-1]
    if last["of"] and number + _stride(numbers[rank]) < int(last["of"]):
        yield f"the script ended at {last['name']} {number} of {last['of']}"


def _stride(numbers: Sequence[int]) -> int:
    """How far apart the steps are that a script prints, by the last two; 1 at least."""
    return max(1, numbers[-1] - numbers[-2]) if len(numbers) > 1 else 1


def _of_log(text: str) -> Iterator[str]:
    figures: dict[str, list[tuple[str, str]]] = {}
    for line in text.splitlines():
        for match in _FIGURE.finditer(line[:_LONGEST_LINE]):
            value = match["value"].lower()
            figures.setdefault(match["name"], []).append((value, line))
    is_complete = len(text) < _LEAST_CUT
    for name, series in figures.items():
        at_end = len(list(takewhile(lambda figure: _is_lost(figure[0]), reversed(series))))
        if at_end >= _LEAST_AT_END:
            value, line = series[-at_end]
            word = "NaN" if "nan" in value else "infinite"
            yield f"`{name}` is {word} from `{line.strip()[:_SHOWN_LINE]}` on"
        elif is_complete and "loss" in name.lower() and _is_constant([each for each, _ in series]):
            yield f"`{name}` is {series[0][0]} in all of its {len(series)} lines: it never changed"


def _is_lost(value: str) -> bool:
    return "nan" in value or "inf" in value


def _is_constant(values: Sequence[str]) -> bool:
    """Not of one that was rounded until no change is seen."""
    digits = values[0].partition("e")[0].replace(".", "").lstrip("+-0")
    return len(values) >= _LEAST_EQUAL and len(set(values)) == 1 and len(digits) >= _LEAST_DIGITS
