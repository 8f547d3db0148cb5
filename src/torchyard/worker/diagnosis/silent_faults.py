"""Tell of a job that succeeded although its work may have been in vain.

Owns: figures in its log that turned into NaN, or that never changed; ranks that printed and logged
nothing, or that never spoke to each other; a command that asks for a GPU where there is none.
Leaves: Pythons that failed in a rank that succeeded to hidden_failures.py.
Always: a notice states what the log shows and no guess about it; of each rank only the end of its
log is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path

from torchyard.worker.diagnosis import artifacts
from torchyard.worker.diagnosis.context import DiagnosisContext, DoneWork
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
# How much an epoch or a step worked on, as `epoch 3: 0 batches, loss 0.0000` says.
_COUNT = re.compile(
    r"\b(?:step|epoch|iteration)\W{0,3}\d{1,12}\b.{0,40}?(?<![\w.,/])(?P<number>\d{1,12}) "
    r"(?:batches|samples|images|examples|steps|rows|files|items)(?=[,;:.)]|\s*$)",
    re.IGNORECASE,
)
_LEAST_AT_END, _LEAST_EQUAL, _LEAST_DIGITS = 3, 20, 4
_LEAST_GROWN, _TIMES_FIRST, _LEAST_WARNINGS = 10, 100.0, 3
_AT_EXIT = re.compile(r"^(?:Exception ignored in atexit callback|Error in atexit\._run_exitfuncs)",
                      re.MULTILINE)  # fmt: skip
_SKIPS = re.compile(r"\b(?:skipp\w{2,3}|overflow\w{0,3})\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d[\d.e+-]{0,20}")
# Of a longer log only the end is read.
_LEAST_CUT = 60_000
_LONGEST_LINE, _SHOWN_LINE = 2_000, 80
_MOST_TOLD = 3
_ASKS_FOR_GPU = re.compile(
    r"--?[\w-]{1,30}[= ](?:gpus?|cuda(?::\d{1,3})?)(?![\w.-])", re.IGNORECASE
)


def notices(ranks: Sequence[Rank], context: DiagnosisContext, work: DoneWork) -> Iterator[str]:
    """One sentence each."""
    logs = {rank: artifacts.log_tail(rank.log) for rank in ranks}
    if work.is_whole and len(ranks) > 1 and not work.has_logged and not any(logs.values()):
        yield (
            "nothing was printed or logged by any rank, and ./outputs is empty: did the script do "
            "its work"
        )
    asked = _ASKS_FOR_GPU.search(work.command)
    has_first = any(rank.rank == 0 for rank in ranks)
    records = [context.records_folder(rank.rank) for rank in ranks]
    if has_first and len(ranks) > 1 and all(map(_worked_alone, records)):
        yield (
            f"{len(ranks)} ranks used torch, and none called a collective: each worked by itself; "
            "to train one model, call `init_process_group` and wrap it in DistributedDataParallel"
        )
    if asked and not work.has_gpus and has_first:
        yield f"the command asks for a GPU (`{asked[0]}`), but no GPU was used: this node has none"
    yield from _unequal_steps({rank.rank: text for rank, text in logs.items()})
    logged = {
        key: first for key, (first, count) in work.lost_figures.items() if count >= _LEAST_AT_END
    }
    for key, first in islice(logged.items(), _MOST_TOLD):
        yield f"metric `{key}` is {_lost_name(first['value'])} from step {first['step']} on"
    sentences = (
        f"rank {rank.rank}: {sentence} ({rank.log_name})"
        for rank, text in logs.items()
        for sentence in (*_failed_at_exit(text, context), *_of_log(text, logged))
    )
    yield from islice(sentences, _MOST_TOLD)


def _worked_alone(records: Path) -> bool:
    return any(leaving.alone for leaving in artifacts.leavings(records))


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


def _failed_at_exit(text: str, context: DiagnosisContext) -> Iterator[str]:
    """A function of `atexit` that raised: Python prints that and exits with 0."""
    *_, last = _AT_EXIT.split(text)
    error = artifacts.last_trace(last) if len(last) < len(text) else None
    if error is not None:
        from torchyard.worker.diagnosis import diagnosis  # Most jobs need none.

        frame = artifacts.user_frame(error.frames)
        location = diagnosis.location_of(frame, context)
        yield f"what it was to do at its exit failed: {diagnosis.short_title(error)}{location}"


def _repeated_warnings(lines: Sequence[str]) -> Iterator[str]:
    """What a script says again and again of things that fail, and goes on."""
    shapes: dict[str, list[str]] = {}
    warnings = artifacts.warnings(lines)
    for line in (*warnings, *filter(_SKIPS.search, lines)):
        shapes.setdefault(_NUMBER.sub("0", line), []).append(line)
    for same in shapes.values():
        least = _LEAST_WARNINGS if same[0] in warnings else max(_LEAST_WARNINGS, len(lines) / 4)
        if len(same) >= least:
            yield f"`{same[0].strip()[:_SHOWN_LINE]}`, and so {len(same)} times"


def _of_log(text: str, told: Collection[str]) -> Iterator[str]:
    figures: dict[str, list[tuple[str, str]]] = {}
    lines = text.splitlines()
    yield from _repeated_warnings(lines)
    counts = [(match, line) for line in lines if (match := _COUNT.search(line[:_LONGEST_LINE]))]
    if len(counts) > 1 and not any(int(match["number"]) for match, _ in counts):
        yield f"all its epochs or steps are empty: `{counts[-1][1].strip()[:_SHOWN_LINE]}`"
    for line in lines:
        for match in _FIGURE.finditer(line[:_LONGEST_LINE]):
            value = match["value"].lower()
            figures.setdefault(match["name"], []).append((value, line))
    is_complete = len(text) < _LEAST_CUT
    for name, series in figures.items():
        at_end = len(list(takewhile(lambda figure: _is_lost(figure[0]), reversed(series))))
        if at_end >= _LEAST_AT_END and name not in told:
            value, line = series[-at_end]
            yield f"`{name}` is {_lost_name(value)} from `{line.strip()[:_SHOWN_LINE]}` on"
        elif is_complete and "loss" in name.lower() and _is_constant([each for each, _ in series]):
            yield f"`{name}` is {series[0][0]} in all of its {len(series)} lines: it never changed"
        elif is_complete and "loss" in name.lower() and _has_grown([each for each, _ in series]):
            yield f"`{name}` grew from {series[0][0]} to {series[-1][0]}"


def _lost_name(value: str) -> str:
    return "NaN" if "nan" in value.lower() else "infinite"


def _is_lost(value: str) -> bool:
    return "nan" in value or "inf" in value


def _is_constant(values: Sequence[str]) -> bool:
    """Not of one that was rounded until no change is seen, unless it was 0 from the start."""
    digits = values[0].partition("e")[0].replace(".", "").lstrip("+-0")
    if len(set(values)) > 1 or len(values) < _LEAST_AT_END:
        return False
    return not float(values[0]) or (len(values) >= _LEAST_EQUAL and len(digits) >= _LEAST_DIGITS)


def _has_grown(values: Sequence[str]) -> bool:
    """To many times the first one, which it has not been below since."""
    numbers = [float(value) for value in values]
    first = abs(numbers[0])
    return (
        len(numbers) >= _LEAST_GROWN
        and numbers[-1] == max(numbers) > _TIMES_FIRST * max(first, 1.0)
        and min(numbers) == numbers[0]
    )
