"""Tell of a job that succeeded although its work may have been in vain.

Owns: losses in its log that turned into NaN, or that never changed; ranks that printed and logged
nothing, or that never spoke to each other; a command that asks for a GPU where there is none.
Leaves: Pythons that failed in a rank that succeeded to hidden_failures.py.
Always: a notice states what the log shows and no guess about it; of each rank only the end of its
log is read; a rule that fails silences no other.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from torchyard.worker.diagnosis import artifacts
from torchyard.worker.diagnosis.context import DiagnosisContext, DoneWork
from torchyard.worker.launch.ranks import Rank

# A loss has the words before it in its name, since `packet loss` is another one than `train loss`.
_FIGURE = re.compile(
    r"(?<![\w.])(?P<name>(?:[A-Za-z]{1,20} ){0,2}loss(?![\w/.-])|[A-Za-z][\w/.-]{0,40})"
    r"\s{0,3}[=:]?\s{0,3}"
    r"(?P<value>[-+]?(?:nan|inf(?:inity)?|\d{1,20}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?))(?![\w.%])",
    re.IGNORECASE,
)
# The losses that should fall, and what is lost if it is NaN; a best one may be none so far.
_LOSS = re.compile(r"(?:(?:train(?:ing)?|val(?:id(?:ation)?)?)[ /_.-])?loss", re.IGNORECASE)
_MAY_BE_LOST = re.compile(
    r"(?!.*(?<![A-Za-z])(?:best|min|lowest)(?![A-Za-z])).*(?:loss|perplexity|ppl)", re.IGNORECASE
)
_STEP = re.compile(
    r"(?<![\w.])(?P<name>step|epoch|batch|iteration|iter)\s{0,3}[=:]?\s{0,3}(?P<number>\d{1,12})"
    r"(?:\s?(?:/|of)\s?(?P<of>\d{1,12}))?(?![\w.])",
    re.IGNORECASE,
)
# How much an epoch or a step worked on, as `epoch 3: 0 batches, loss 0.0000` says.
_COUNT = re.compile(
    r"\b(?:step|epoch|iteration)\W{0,3}\d{1,12}\b[\W\d_]{0,40}?(?<![\w.,/])(?P<number>\d{1,12}) "
    r"(?:batches|samples|images|examples|steps|rows|files|items)(?=[,;:.)]|\s*$)",
    re.IGNORECASE,
)
_LEAST_AT_END, _LEAST_EQUAL, _LEAST_DIGITS = 3, 20, 4
_LEAST_GROWN, _TIMES_FIRST, _LEAST_WARNINGS = 10, 100.0, 3
_AT_EXIT = re.compile(r"^(?:Exception ignored in atexit callback|Error in atexit\._run_exitfuncs)",
                      re.MULTILINE)  # fmt: skip
_SKIPS = re.compile(
    r"(?<!\b0 )(?<!\bno )\b(?:skipp\w{2,3}|overflow\w{0,3})\b"
    r"(?!\s?[:=]?\s?(?:false|none|no|0)(?![\w.]))",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d[\d.e+-]{0,20}")
# Of a longer log only the end is read.
_LEAST_CUT = 60_000
_LONGEST_LINE, _SHOWN_LINE = 2_000, 80
_MOST_TOLD = 3
_ASKS_FOR_GPU = re.compile(
    r"--?[\w-]{1,30}[= ](?:gpus?|cuda(?::\d{1,3})?)(?![\w.-])", re.IGNORECASE
)


def notices(ranks: Sequence[Rank], context: DiagnosisContext, work: DoneWork) -> list[str]:
    """One sentence each."""
    logs = {rank: artifacts.log_tail(rank.log) for rank in ranks}
    lost_metrics = {
        key: first for key, (first, count) in work.lost_figures.items() if count >= _LEAST_AT_END
    }
    of_ranks = (
        sentence
        for rank, text in logs.items()
        for sentence in _of_rank(rank, text, context, lost_metrics)
    )
    return [
        *_all_of(_without_work(logs, work)),
        *_all_of(_alone(ranks, context)),
        *_all_of(_without_gpu(ranks, work)),
        *_all_of(_unequal_steps({rank.rank: text for rank, text in logs.items()})),
        *_all_of(_of_metrics(lost_metrics)),
        *islice(of_ranks, _MOST_TOLD),
    ]


def _of_rank(
    rank: Rank, text: str, context: DiagnosisContext, lost_metrics: Collection[str]
) -> Iterator[str]:
    for sentence in (
        *_all_of(_failed_at_exit(text, context)),
        *_all_of(_repeated_warnings(text.splitlines())),
        *_all_of(_empty_steps(text)),
        *_all_of(_of_figures(text, lost_metrics)),
    ):
        yield f"rank {rank.rank}: {sentence} ({rank.log_name})"


def _all_of(rule: Iterator[str]) -> list[str]:
    """What one rule tells; nothing where it fails."""
    try:
        return list(rule)
    except Exception:
        traceback.print_exc()
        return []


def _without_work(logs: Mapping[Rank, str], work: DoneWork) -> Iterator[str]:
    if work.is_whole and len(logs) > 1 and not work.has_logged and not any(logs.values()):
        yield (
            "nothing was printed or logged by any rank, and ./outputs is empty: did the script do "
            "its work"
        )


def _alone(ranks: Sequence[Rank], context: DiagnosisContext) -> Iterator[str]:
    records = [context.records_folder(rank.rank) for rank in ranks]
    if _has_first(ranks) and len(ranks) > 1 and all(map(_worked_alone, records)):
        yield (
            f"{len(ranks)} ranks used torch, and none called a collective: was each to work by "
            "itself? To train one model, call `init_process_group` and wrap it in "
            "DistributedDataParallel"
        )


def _worked_alone(records: Path) -> bool:
    return any(leaving.alone for leaving in artifacts.leavings(records))


def _without_gpu(ranks: Sequence[Rank], work: DoneWork) -> Iterator[str]:
    gpu_option = _ASKS_FOR_GPU.search(work.command)
    if gpu_option and not work.has_gpus and _has_first(ranks):
        yield (
            f"the command asks for a GPU (`{gpu_option[0]}`), but no GPU was used: this node has "
            "none"
        )


def _has_first(ranks: Sequence[Rank]) -> bool:
    """Whether this node has the job's first rank, so that what is of all is told once."""
    return any(rank.rank == 0 for rank in ranks)


def _of_metrics(lost_metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for key, first in islice(lost_metrics.items(), _MOST_TOLD):
        yield f"metric `{key}` is {_lost_name(first['value'])} from step {first['step']} on"


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


def _of_figures(text: str, lost_metrics: Collection[str]) -> Iterator[str]:
    """Tell of figures in a log, but for those that were logged as metrics and told of as such."""
    figures: dict[str, list[tuple[str, str]]] = {}
    for line in text.splitlines():
        for match in _FIGURE.finditer(line[:_LONGEST_LINE]):
            figures.setdefault(match["name"], []).append((match["value"].lower(), line))
    is_complete = len(text) < _LEAST_CUT
    for name, series in figures.items():
        values = [value for value, _ in series]
        at_end = len(list(takewhile(_is_lost, reversed(values))))
        if at_end >= _LEAST_AT_END and name not in lost_metrics and _MAY_BE_LOST.match(name):
            value, line = series[-at_end]
            yield f"`{name}` is {_lost_name(value)} from `{line.strip()[:_SHOWN_LINE]}` on"
        if not is_complete or not _LOSS.fullmatch(name):
            continue
        if _is_constant(values, may_be_0=name.lower().startswith("val")):
            yield f"`{name}` is {values[0]} in all of its {len(values)} lines: it never changed"
        elif _has_grown(values):
            yield f"`{name}` grew from {values[0]} to {values[-1]}"


def _lost_name(value: str) -> str:
    return "NaN" if "nan" in value.lower() else "infinite"


def _is_lost(value: str) -> bool:
    return "nan" in value or "inf" in value


def _is_constant(values: Sequence[str], *, may_be_0: bool) -> bool:
    """Whether all values are equal, and have enough digits to show a change, or are 0."""
    digits = values[0].partition("e")[0].replace(".", "").lstrip("+-0")
    if len(set(values)) > 1 or len(values) < _LEAST_AT_END:
        return False
    if not float(values[0]):
        return not may_be_0
    return len(values) >= _LEAST_EQUAL and len(digits) >= _LEAST_DIGITS


def _has_grown(values: Sequence[str]) -> bool:
    """Whether the last value is the largest, and many times the first, which is the smallest."""
    numbers = [float(value) for value in values]
    first = abs(numbers[0])
    return (
        len(numbers) >= _LEAST_GROWN
        and numbers[-1] == max(numbers) > _TIMES_FIRST * max(first, 1.0)
        and min(numbers) == numbers[0]
    )
