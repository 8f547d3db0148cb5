"""Tell of a job that succeeded although its work may have been in vain.

Owns: figures in its log that turned into NaN, or that never changed; ranks that printed and logged
nothing, that never spoke to each other, that did the same work, or none after they had resumed; a
command that asks for a GPU where there is none.
Leaves: Pythons that failed in a rank that succeeded to hidden_failures.py.
Always: a notice states what the log shows and no guess about it; of each rank only the end of its
log is read.
"""

from __future__ import annotations

import math
import re
import statistics
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
# A quarter of losses that may be of guessing among so many classes, and how near they must be.
_LEAST_QUARTER, _CLASSES, _NEAR = 10, (2, 10, 100, 1000), 0.003
_LOSS = re.compile(r"(?:(?:train|val)[a-z]{0,7}[/_.-])?loss", re.IGNORECASE)
_SCORE = re.compile(
    r"(?:^|[\W_])(?:acc(?:uracy)?|f1|recall|precision|iou|bleu)(?:$|[\W_])", re.IGNORECASE
)
_HELD_OUT = re.compile(
    r"\b(?:val|valid|validation|eval|evaluation|test|dev)(?=\b|_)", re.IGNORECASE
)
_LEAST_ZEROS, _LEAST_SAME = 10, 5
_RESUMES = re.compile(
    r"\b(?:resum|continu)\w{2,3}\b.{0,300}?\b(?:step|epoch|iteration)\W{0,3}[1-9]\d{0,11}\b",
    re.IGNORECASE,
)
_PROGRESS = re.compile(r"\d\s?(?:%|/\s?\d)")
_MOST_LINES_OF_NONE = 5
_ONE_PYTHON = re.compile(r"\s*(?:\S*/)?python[\d.]{0,5}\s[^;&|\n]*\Z")
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


# By name, each value with its line.
_Figures = dict[str, list[tuple[str, str]]]


def notices(ranks: Sequence[Rank], context: DiagnosisContext, work: DoneWork) -> Iterator[str]:
    """One sentence each."""
    logs = {rank: artifacts.log_tail(rank.log) for rank in ranks}
    if work.is_whole and len(ranks) > 1 and not work.has_logged and not any(logs.values()):
        yield (
            "nothing was printed or logged by any rank, and ./outputs is empty: did the script do "
            "its work"
        )
    gpu_option = _ASKS_FOR_GPU.search(work.command)
    has_first = any(rank.rank == 0 for rank in ranks)
    records = [context.records_folder(rank.rank) for rank in ranks]
    if has_first and len(ranks) > 1 and all(map(_worked_alone, records)):
        yield (
            f"{len(ranks)} ranks used torch, and none called a collective: each worked by itself; "
            "to train one model, call `init_process_group` and wrap it in DistributedDataParallel"
        )
    if gpu_option and not work.has_gpus and has_first:
        yield (
            f"the command asks for a GPU (`{gpu_option[0]}`), but no GPU was used: this node has "
            "none"
        )
    yield from _unequal_steps({rank.rank: text for rank, text in logs.items()})
    if work.is_whole and not work.has_logged:
        yield from _did_nothing_after_resuming(list(logs.values()))
    figures = {rank: _figures(text) for rank, text in logs.items()}
    if has_first and all(map(_worked_apart, records)) and _ONE_PYTHON.match(work.command):
        yield from _same_work(list(figures.values()))
    lost_metrics = {
        key: first for key, (first, count) in work.lost_figures.items() if count >= _LEAST_AT_END
    }
    for key, first in islice(lost_metrics.items(), _MOST_TOLD):
        yield f"metric `{key}` is {_lost_name(first['value'])} from step {first['step']} on"
    sentences = (
        f"rank {rank.rank}: {sentence} ({rank.log_name})"
        for rank, text in logs.items()
        for sentence in (
            *_failed_at_exit(text, context),
            *_repeated_warnings(text.splitlines()),
            *_empty_steps(text),
            *_of_figures(figures[rank], len(text) < _LEAST_CUT, lost_metrics),
        )
    )
    yield from islice(sentences, _MOST_TOLD)


def _worked_alone(records: Path) -> bool:
    return any(leaving.alone for leaving in artifacts.leavings(records))


def _worked_apart(records: Path) -> bool:
    leavings = artifacts.leavings(records)
    return bool(leavings) and all(leaving.apart for leaving in leavings)


def _same_work(of_ranks: Sequence[_Figures]) -> Iterator[str]:
    """Of ranks that can't have told each other what they print."""
    first, *others = (
        {name: series for name, series in each.items() if "loss" in name.lower()}
        for each in of_ranks
    )
    for name, series in first.items():
        values = [value for value, _ in series]
        is_same = all([value for value, _ in each.get(name, ())] == values for each in others)
        exact = {value for value in values if len(_digits(value)) >= _LEAST_DIGITS}
        if others and is_same and len(exact) >= _LEAST_SAME:
            yield (
                f"{len(of_ranks)} ranks printed the same {len(values)} values of `{name}`, and "
                "none loaded a module by which it could reach another: each did the same work; a "
                "rank knows its own part by RANK and WORLD_SIZE"
            )
            return


def _did_nothing_after_resuming(texts: Sequence[str]) -> Iterator[str]:
    """By all ranks, as often only one of them prints."""
    said = ""
    for text in texts:
        lines = [line for line in text.splitlines() if line.strip()]
        rest = list(takewhile(lambda line: not _resumes(line), reversed(lines)))
        if _shows_work(rest):
            return
        if len(rest) < len(lines):
            said = said or lines[-len(rest) - 1].strip()
    if said:
        yield f"it printed `{said[:_SHOWN_LINE]}`, and no epoch, step or figure after that"


def _resumes(line: str) -> bool:
    return _RESUMES.search(line[:_LONGEST_LINE]) is not None


def _shows_work(lines: Sequence[str]) -> bool:
    """What prints much is taken for work, whatever it prints."""
    return len(lines) > _MOST_LINES_OF_NONE or any(
        pattern.search(line[:_LONGEST_LINE])
        for line in lines
        for pattern in (_STEP, _FIGURE, _PROGRESS)
    )


def _unequal_steps(logs: Mapping[int, str]) -> Iterator[str]:
    """Tell of a rank that printed fewer of the same steps than the others, and of a script that
    ended before its last step.
    """
    steps = {rank: list(_STEP.finditer(text)) for rank, text in logs.items()}
    numbers = {rank: [int(step["number"]) for step in each] for rank, each in steps.items()}
    shortest = min(numbers, key=lambda rank: len(numbers[rank]), default=0)
    fewest = numbers.get(shortest, [])
    others = [each for rank, each in numbers.items() if rank != shortest]
    if fewest and others and all(each[: len(fewest)] == fewest for each in others):
        last_steps = {each[-1] for each in others}
        if len(last_steps) == 1 and (last := last_steps.pop()) > fewest[-1] + _stride(fewest):
            name = steps[shortest][-1]["name"]
            yield (
                f"rank {shortest} ended early: its last {name} is {fewest[-1]}, "
                f"that of the others {last}"
            )
    rank = next((rank for rank, each in steps.items() if each), None)
    if rank is None:
        return
    step, number = steps[rank][-1], numbers[rank][-1]
    if step["of"] and number + _stride(numbers[rank]) < int(step["of"]):
        yield f"the script ended at {step['name']} {number} of {step['of']}"


def _stride(numbers: Sequence[int]) -> int:
    """Return the difference of the last two steps that a script printed; at least 1."""
    return max(1, numbers[-1] - numbers[-2]) if len(numbers) > 1 else 1


def _failed_at_exit(text: str, context: DiagnosisContext) -> Iterator[str]:
    """Tell of an `atexit` function that raised: Python prints that and exits with 0."""
    *_, last = _AT_EXIT.split(text)
    error = artifacts.last_trace(last) if len(last) < len(text) else None
    if error is not None:
        from torchyard.worker.diagnosis import diagnosis  # Most jobs need none.

        frame = artifacts.user_frame(error.frames)
        location = diagnosis.location_of(frame, context)
        yield f"what it was to do at its exit failed: {diagnosis.short_title(error)}{location}"


def _repeated_warnings(lines: Sequence[str]) -> Iterator[str]:
    """Tell of warnings that a script repeats, with other numbers in them or the same."""
    groups: dict[str, list[str]] = {}
    warnings = artifacts.warnings(lines)
    for line in (*warnings, *filter(_SKIPS.search, lines)):
        groups.setdefault(_NUMBER.sub("0", line), []).append(line)
    for group in groups.values():
        least = _LEAST_WARNINGS if group[0] in warnings else max(_LEAST_WARNINGS, len(lines) / 4)
        if len(group) >= least:
            yield f"`{group[0].strip()[:_SHOWN_LINE]}`, and so {len(group)} times"


def _empty_steps(text: str) -> Iterator[str]:
    lines = text.splitlines()
    counts = [(match, line) for line in lines if (match := _COUNT.search(line[:_LONGEST_LINE]))]
    if len(counts) > 1 and not any(int(match["number"]) for match, _ in counts):
        yield f"all its epochs or steps are empty: `{counts[-1][1].strip()[:_SHOWN_LINE]}`"


def _figures(text: str) -> _Figures:
    figures: _Figures = {}
    for line in text.splitlines():
        for match in _FIGURE.finditer(line[:_LONGEST_LINE]):
            figures.setdefault(match["name"], []).append((match["value"].lower(), line))
    return figures


def _of_figures(
    figures: _Figures, is_complete: bool, lost_metrics: Collection[str]
) -> Iterator[str]:
    """Tell of figures in a log, but for those that were logged as metrics and told of as such."""
    for name, series in figures.items():
        values = [value for value, _ in series]
        at_end = len(list(takewhile(_is_lost, reversed(values))))
        is_loss = is_complete and "loss" in name.lower()
        if at_end >= _LEAST_AT_END and name not in lost_metrics:
            value, line = series[-at_end]
            yield f"`{name}` is {_lost_name(value)} from `{line.strip()[:_SHOWN_LINE]}` on"
        elif (is_loss and _is_constant(values)) or (is_complete and _is_never_right(name, series)):
            yield f"`{name}` is {values[0]} in all of its {len(values)} lines: it never changed"
        elif is_loss and _has_grown(values):
            yield f"`{name}` grew from {values[0]} to {values[-1]}"
        elif is_loss and _LOSS.fullmatch(name) and (classes := _guessed_among(values)):
            yield (
                f"`{name}` stays near {math.log(classes):.4g} in its {len(values)} lines, the loss "
                f"of guessing one of {classes} classes: it learned nothing"
            )


def _lost_name(value: str) -> str:
    return "NaN" if "nan" in value.lower() else "infinite"


def _is_lost(value: str) -> bool:
    return "nan" in value or "inf" in value


def _is_constant(values: Sequence[str]) -> bool:
    """Whether all values are equal, and have enough digits to show a change, or are 0."""
    if len(set(values)) > 1 or len(values) < _LEAST_AT_END:
        return False
    return not float(values[0]) or (
        len(values) >= _LEAST_EQUAL and len(_digits(values[0])) >= _LEAST_DIGITS
    )


def _digits(value: str) -> str:
    """Those that say how exact it is."""
    return value.partition("e")[0].replace(".", "").lstrip("+-0")


def _is_never_right(name: str, series: Sequence[tuple[str, str]]) -> bool:
    """A score of held-out data that is 0 all along."""
    return (
        len(series) >= _LEAST_ZEROS
        and _SCORE.search(name) is not None
        and all(not float(value) and _HELD_OUT.search(line) for value, line in series)
    )


def _guessed_among(values: Sequence[str]) -> int:
    """The number of classes of which guessing has these losses, which don't fall; 0 for others."""
    size = len(values) // 4
    numbers = [float(value) for value in values]
    if size < _LEAST_QUARTER or not all(map(math.isfinite, numbers)):
        return 0
    means = [statistics.fmean(numbers[size * part : size * (part + 1)]) for part in range(4)]
    scatter = 2 * statistics.pstdev(numbers) / math.sqrt(size)
    if means[-1] < means[0] - scatter:
        return 0
    levels = {classes: math.log(classes) for classes in _CLASSES}
    return next(
        (
            classes
            for classes, level in levels.items()
            if all(abs(mean - level) < _NEAR * level for mean in means)
        ),
        0,
    )


def _has_grown(values: Sequence[str]) -> bool:
    """Whether the last value is the largest, and many times the first, which is the smallest."""
    numbers = [float(value) for value in values]
    first = abs(numbers[0])
    return (
        len(numbers) >= _LEAST_GROWN
        and numbers[-1] == max(numbers) > _TIMES_FIRST * max(first, 1.0)
        and min(numbers) == numbers[0]
    )
