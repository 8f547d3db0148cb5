"""Tell of a job that succeeded although its work may have been in vain.

Owns: figures in its log that turned into NaN, or that never changed; ranks that printed and logged
nothing; a command that asks for a GPU where there is none.
Leaves: Pythons that failed in a rank that succeeded to hidden_failures.py.
Always: what is told is what can be seen, so that it is right whatever the job was for; of each rank
only the end of its log is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

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
_LEAST_AT_END, _LEAST_EQUAL = 3, 20
_LONGEST_LINE, _SHOWN_LINE = 2_000, 80
_MOST_TOLD = 3
_ASKS_FOR_GPU = re.compile(
    r"--?[\w-]{1,30}[= ](?:gpus?|cuda(?::\d{1,3})?)(?![\w.-])", re.IGNORECASE
)


def notices(
    ranks: Sequence[Rank], *, command: str, has_logged: bool, has_gpus: bool
) -> Iterator[str]:
    """One sentence each.

    Args:
        has_logged: a rank logged a metric or wrote an output.
        has_gpus: the node has a GPU, or the job does as if.
    """
    if len(ranks) > 1 and not has_logged and not any(_size(rank.log) for rank in ranks):
        yield (
            "nothing was printed or logged by any rank, and ./outputs is empty: did the script do "
            "its work"
        )
    asked = _ASKS_FOR_GPU.search(command)
    if asked and not has_gpus:
        yield f"the command asks for a GPU (`{asked[0]}`), but no GPU was used: this node has none"
    yield from _unequal_steps(ranks)
    told = 0
    for rank in ranks:
        for sentence in _of_log(artifacts.log_tail(rank.log)):
            if told < _MOST_TOLD:
                yield f"rank {rank.rank}: {sentence} ({rank.log_name})"
            told += 1


def _unequal_steps(ranks: Sequence[Rank]) -> Iterator[str]:
    """Of ranks that print the same steps the one that came less far; how far of all they came."""
    steps = {rank.rank: list(_STEP.finditer(artifacts.log_tail(rank.log))) for rank in ranks}
    numbers = {rank: [int(step["number"]) for step in each] for rank, each in steps.items()}
    least = min(numbers, key=lambda rank: len(numbers[rank]), default=0)
    others = [each for rank, each in numbers.items() if rank != least]
    shared = len(numbers.get(least, ()))
    if shared and others and all(each[:shared] == numbers[least] for each in others):
        furthest = {each[-1] for each in others}
        if len(furthest) == 1 and (most := furthest.pop()) > numbers[least][-1] + 1:
            yield (
                f"rank {least} ended early: its last {steps[least][-1]['name']} is "
                f"{numbers[least][-1]}, that of the others {most}"
            )
    last = next((each[-1] for each in steps.values() if each), None)
    if last is not None and last["of"] and int(last["number"]) + 1 < int(last["of"]):
        yield f"the script ended at {last['name']} {last['number']} of {last['of']}"


def _of_log(text: str) -> Iterator[str]:
    figures: dict[str, list[tuple[str, str]]] = {}
    for line in text.splitlines():
        for match in _FIGURE.finditer(line[:_LONGEST_LINE]):
            value = match["value"].lower()
            figures.setdefault(match["name"], []).append((value, line))
    for name, series in figures.items():
        at_end = 0
        for value, _ in reversed(series):
            if not _is_lost(value):
                break
            at_end += 1
        if at_end >= _LEAST_AT_END:
            value, line = series[-at_end]
            word = "NaN" if "nan" in value else "infinite"
            yield f"`{name}` is {word} from `{line.strip()[:_SHOWN_LINE]}` on"
        elif "loss" in name.lower() and len(series) >= _LEAST_EQUAL and _is_constant(series):
            yield f"`{name}` is {series[0][0]} in all of its {len(series)} lines: it never changed"


def _is_lost(value: str) -> bool:
    return "nan" in value or "inf" in value


def _is_constant(series: Sequence[tuple[str, str]]) -> bool:
    values = {value for value, _ in series}
    return len(values) == 1 and bool(re.search(r"[1-9]", next(iter(values))))


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0
