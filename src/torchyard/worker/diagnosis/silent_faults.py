"""Tell of a job that succeeded although its work may have been in vain.

Owns: losses in its log that turned into NaN or 0, or that never changed, a learning rate below 0,
a state that fits no model, data that are made up; ranks that printed and logged nothing, that never
spoke to each other, or of which one alone worked or was slow; help in place of work; a command that
asks for a GPU where there is none.
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
_RATE = re.compile(r"lr|learning[_-]?rate", re.IGNORECASE)
# What makes another figure of a rate behind it, and of a loss.
_LOG_OF = re.compile(r"(?<![A-Za-z])(?:log(?:10|2)?|ln)[ (]$", re.IGNORECASE)
_EVALUATES = re.compile(r"(?<!\w)(?:e?val|valid(?:ation)?|evaluation|test)(?!\w)", re.IGNORECASE)
# A loss that was at least half of its first value falls to 0 at once, and stays there.
_LEAST_BEFORE_0, _LEAST_AT_0, _SHARE_BEFORE_0, _LEAST_UNITS = 5, 10, 0.5, 100
# How much longer a rank took for the same steps than any other; how little of the time of the one
# that made steps the others took.
_LEAST_STEPS, _TIMES_LONGER, _LEAST_LATER_S, _SHARE_AT_ONCE = 10, 3.0, 2.0, 0.1
# As argparse and click print the options of a script, at whose end they end it.
_HELP = re.compile(
    r"^usage: .*^ {1,8}(?:-h, )?--help\s{1,30}show this (?:help )?message and exit\.?$"
    r"(?P<rest>.*)\Z",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
# `-h 256` asks for something else.
_ASKS_FOR_HELP = re.compile(
    r"(?<![^\s'\"(])(?:--help|help|-h(?![ \t]+(?!\d?>)[^\s;&|)>#'\"-]))(?![^\s;&|)>'\"])"
)
# As torch prints what `load_state_dict(…, strict=False)` returns.
_UNLIKE, _ALL_MATCHED = "IncompatibleKeys(", "<All keys matched"
_LEAST_KEYS, _PREFIXES = 4, ("module.", "model.", "_orig_mod.")
_UNLIKE_KEYS = re.compile(
    r"IncompatibleKeys\(missing_keys=\[(?P<missing>[^\]\n]{3,50000})\], "
    r"unexpected_keys=\[(?P<unexpected>[^\]\n]{3,50000})\]\)"
)
_NOT_FOUND = (
    r"\b(?:not found|no such|missing|does(?: not|n't) exist|could(?: not|n't)|cannot|failed)\b"
)
_MAKES_DATA = (
    r"\b(?:us(?:e|es|ing)|generat\w{1,4}|creat\w{1,4}|fall\w{0,4} back (?:on|to)|return\w{0,3})\s"
    r"(?:\S{1,20}\s){0,3}?(?:(?:synthetic|fake|dummy|mock|made[ -]up)\s"
    r"(?:data(?:set)?|rows|samples|images|examples)\b|random\sdata(?=\s*(?:[.,;)]|$)))"
)
# An option by which the user wants that.
_WANTS_MADE_UP = re.compile(
    r"(?<![\w-])--?(?:[\w-]{0,30}[_-])?(?:synthetic|fake|dummy|mock)|\b(?:synthetic|fake|dummy|mock)[\w-]{0,30}=",
    re.IGNORECASE,
)
_MAKES_UP = re.compile(
    rf"^(?:.{{0,60}}\b(?:warning|(?-i:WARN|ERROR))|\W{{0,3}}error)\b"
    rf"(?=.{{0,300}}{_NOT_FOUND}).{{0,300}}{_MAKES_DATA}",
    re.IGNORECASE,
)
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
_LONGEST_LINE, _SHOWN_LINE, _SHOWN_WARNING = 2_000, 80, 160
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
        for sentence in _of_rank(rank, text, context, work, lost_metrics)
    )
    return [
        *_all_of(_without_work(logs, work)),
        *_all_of(_alone(ranks, context)),
        *_all_of(_without_gpu(ranks, work)),
        *_all_of(_unequal_steps({rank.rank: text for rank, text in logs.items()})),
        *_all_of(_unequal_times(logs, context)),
        *_all_of(_only_help(logs, work)),
        *_all_of(_of_metrics(lost_metrics)),
        *islice(of_ranks, _MOST_TOLD),
    ]


def _of_rank(
    rank: Rank,
    text: str,
    context: DiagnosisContext,
    work: DoneWork,
    lost_metrics: Collection[str],
) -> Iterator[str]:
    for sentence in (
        *_all_of(_failed_at_exit(text, context)),
        *_all_of(_made_up(text.splitlines(), work.command)),
        *_all_of(_unlike_keys(text)),
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


def _only_help(logs: Mapping[Rank, str], work: DoneWork) -> Iterator[str]:
    """Tell of a script that printed its options, which nobody had asked for, and ended by that."""
    shown = [rank for rank, text in logs.items() if _ends_in_help(text)]
    if shown and not _ASKS_FOR_HELP.search(work.command) and _has_first(shown):
        option = "; `-h` in the command asks for that" if re.search(r"\s-h\b", work.command) else ""
        yield (
            f"rank {shown[0].rank}: the script printed the help on its options, and ended by that "
            f"without any work{option} ({shown[0].log_name})"
        )


def _ends_in_help(text: str) -> bool:
    if "--help" not in text:
        return False
    start = max(f"\n{text}".rfind("\nusage: "), f"\n{text}".rfind("\nUsage: "), 0)
    match = _HELP.match(text, start)
    return match is not None and all(
        not line.strip() or line[0].isspace() or line.rstrip().endswith(":")
        for line in match["rest"].splitlines()
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


def _unequal_times(logs: Mapping[Rank, str], context: DiagnosisContext) -> Iterator[str]:
    """Tell of a rank that ran many times as long for the same steps as every other one, or that
    made steps while the others had ended at once.

    The first rank often goes on alone, as to evaluate or to export, and is not slow by that.
    """
    lives = {rank: artifacts.lifetimes(context.records_folder(rank.rank)) for rank in logs}
    if len(logs) < 2 or any(len(each) != 1 for each in lives.values()):
        return
    times = {rank: ended - started for rank, ((started, ended),) in lives.items()}
    longest = max(times, key=lambda rank: times[rank])
    others_s = max(0.1, *(seconds for rank, seconds in times.items() if rank != longest))
    steps = {
        rank: [match["number"] for match in _STEP.finditer(text)] for rank, text in logs.items()
    }
    others = [each for rank, each in steps.items() if rank != longest]
    if len(steps[longest]) < _LEAST_STEPS or times[longest] < others_s + _LEAST_LATER_S:
        return
    is_same_work = longest.rank != 0 and all(each == steps[longest] for each in others)
    if is_same_work and times[longest] > _TIMES_LONGER * others_s:
        yield (
            f"rank {longest.rank} ran {times[longest] / others_s:.1f} times as long as the others, "
            f"{times[longest]:.1f} s, with the same {len(steps[longest])} steps"
        )
    speak = any(
        artifacts.has_collectives(context.records_folder(rank.rank))
        and not _worked_alone(context.records_folder(rank.rank))
        for rank in logs
    )
    if others_s < _SHARE_AT_ONCE * times[longest] and not any(others) and not speak:
        yield (
            f"only rank {longest.rank} printed any step: it ran for {times[longest]:.1f} s, and "
            f"the others ended after {others_s:.1f} s at most"
        )


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


def _made_up(lines: Sequence[str], command: str) -> Iterator[str]:
    """Tell of data that a script did not find and made up, though nobody asked for that."""
    if _WANTS_MADE_UP.search(command):
        return
    for line in lines:
        start = line[:_LONGEST_LINE]
        if _MAKES_UP.match(start) and not _WANTS_MADE_UP.search(start):
            yield f"it made up data that it did not find: `{line.strip()[:_SHOWN_WARNING]}`"
            return


def _unlike_keys(text: str) -> Iterator[str]:
    """Tell of keys of a state that all have a prefix that those of the model have not, or the
    reverse. Of the keys that fit, nothing is printed.
    """
    start = text.rfind(_UNLIKE)
    match = _UNLIKE_KEYS.match(text, start) if start >= 0 else None
    if match is None or text.find(_ALL_MATCHED, start) >= 0:
        return
    missing = re.findall(r"'([^']{1,500})'", match["missing"])
    unexpected = re.findall(r"'([^']{1,500})'", match["unexpected"])
    for has, lacks in ((unexpected, missing), (missing, unexpected)):
        prefix = has[0].removesuffix(lacks[0]) if has and lacks else ""
        is_many = len(has) >= _LEAST_KEYS and prefix in _PREFIXES
        if is_many and has == [prefix + key for key in lacks]:
            yield (
                f"{len(has)} keys of a state were not loaded: the state has "
                f"`{unexpected[0]}` where the model has `{missing[0]}`; add or remove `{prefix}`"
            )
            return


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
            figures.setdefault(_figure_name(match), []).append((match["value"].lower(), line))
    is_complete = len(text) < _LEAST_CUT
    for name, series in figures.items():
        values = [value for value, _ in series]
        at_end = len(list(takewhile(_is_lost, reversed(values))))
        if at_end >= _LEAST_AT_END and name not in lost_metrics and _MAY_BE_LOST.match(name):
            value, line = series[-at_end]
            yield f"`{name}` is {_lost_name(value)} from `{line.strip()[:_SHOWN_LINE]}` on"
        if _RATE.fullmatch(name) and (line := _below_0(series)):
            yield f"`{name}` is below 0 from `{line.strip()[:_SHOWN_LINE]}` on"
        if not is_complete or not _LOSS.fullmatch(name):
            continue
        if not name.lower().startswith("val") and (zeros := _zeros_at_end(values)):
            line = series[-zeros][1]
            yield f"`{name}` is {values[-1]} from `{line.strip()[:_SHOWN_LINE]}` on"
        if _is_constant(values, may_be_0=name.lower().startswith("val")):
            yield f"`{name}` is {values[0]} in all of its {len(values)} lines: it never changed"
        elif _has_grown(values):
            yield f"`{name}` grew from {values[0]} to {values[-1]}"


def _figure_name(figure: re.Match[str]) -> str:
    """The name, with the word before it that makes it another figure."""
    name, before = figure["name"], figure.string[: figure.start()]
    if name.lower() == "loss" and (evaluation := _EVALUATES.search(before)):
        return f"{evaluation[0]} {name}"
    if _RATE.fullmatch(name) and _LOG_OF.search(before):
        return f"log {name}"
    return name


def _lost_name(value: str) -> str:
    return "NaN" if "nan" in value.lower() else "infinite"


def _is_lost(value: str) -> bool:
    return "nan" in value or "inf" in value


def _below_0(series: Sequence[tuple[str, str]]) -> str:
    """The line from which on a figure that was above 0 is below; empty without one."""
    below = list(takewhile(lambda each: float(each[0]) < 0, reversed(series)))
    before = series[: len(series) - len(below)]
    is_new = bool(before) and all(float(value) >= 0 for value, _ in before)
    return below[-1][1] if len(below) >= _LEAST_AT_END and is_new else ""


def _zeros_at_end(values: Sequence[str]) -> int:
    """How many times a loss is exactly 0 at the end that was large before; 0 if it fell, was 0 now
    and then, or may have been rounded.
    """
    numbers = [float(value) for value in values]
    zeros = len(list(takewhile(lambda number: number == 0, reversed(numbers))))
    before = numbers[: len(numbers) - zeros]
    falls_at_once = len(before) >= _LEAST_BEFORE_0 and min(before[-_LEAST_BEFORE_0:]) > (
        _SHARE_BEFORE_0 * before[0]
    )
    is_exact = falls_at_once and before[-1] >= _LEAST_UNITS * _last_digit(values[len(before) - 1])
    return zeros if zeros >= _LEAST_AT_0 and is_exact and 0 not in before else 0


def _last_digit(value: str) -> float:
    """How much a number as it is printed changes by 1 in its last digit."""
    digits, _, exponent = value.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


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
