"""Judge what a launcher said about a fault, by the same rules for every launcher.

Owns: the answer of a launcher, the four questions (rank, line, cause, collective), wrong blame,
the tables.
Leaves: what is right to the faults; running and what counts as said to the launchers' modules.
Always: only the text that a person sees first is judged, and torchyard's code where it has one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from causes.fault import Fault

QUESTIONS = ("end", "rank", "line", "cause", "collective")
_NODE = re.compile(r"\bnode\s*[:=#]?\s*(\d+)", re.IGNORECASE)
_RANK = re.compile(r"\branks?\s*[:=#]?\s*(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """What a launcher made of a fault.

    `end` is `Failed`, `Completed` or `stalls`, the last where it told of a stall while the job
    ran, else how the job stood when the runner lost patience. `text` is what a person sees first:
    a sentence, a hint, or the summary that a launcher prints at the end. `seconds` is from the
    death of the first rank, or the last step, to the text; None where it isn't known.
    """

    fault: str
    end: str
    text: str
    code: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class Judged:
    """`wrong` are the questions answered wrongly or not at all; `blames` says whom it blames."""

    fault: Fault
    answer: Answer
    wrong: tuple[str, ...]
    blames: str = ""

    @property
    def is_right(self) -> bool:
        return not self.wrong and not self.blames


def judge(fault: Fault, answer: Answer) -> Judged:
    right, text = fault.right, answer.text
    wrong = [] if answer.end == right.ends else ["end"]
    blames = ""
    if right.rank is not None:
        named = [int(number) for number in _RANK.findall(text)]
        nodes = [int(number) for number in _NODE.findall(text)]
        # Nobody has to name the node; who does names the right one.
        if right.rank not in named or (nodes and right.node not in (None, *nodes)):
            wrong.append("rank")
        if named and named[0] != right.rank:
            blames = f"rank {named[0]}"
    if right.file is not None and not _names_line(fault, text):
        wrong.append("line")
    has_cause = re.search(right.cause, text, re.IGNORECASE | re.DOTALL) is not None
    if not has_cause or (answer.code and answer.code not in right.code.split("|")):
        wrong.append("cause")
    if right.collective is not None and right.collective not in text:
        wrong.append("collective")
    for pattern in fault.never:
        if match := re.search(pattern, text, re.IGNORECASE):
            blames = blames or f"`{match[0]}`"
    return Judged(fault, answer, tuple(wrong), blames)


def _names_line(fault: Fault, text: str) -> bool:
    name = re.escape(fault.right.file or "")
    lines = "|".join(str(line) for line in fault.lines)
    return re.search(rf'{name}(?:"?,? line |:)(?:{lines})\b', text) is not None


def by_kind(judged: Sequence[Judged]) -> str:
    """A table in Markdown: how many of each kind are right, and what is wrong with the rest."""
    lines = ["| kind | faults | right | " + " | ".join(f"wrong {each}" for each in QUESTIONS)]
    lines[0] += " | wrong blame |"
    lines.append("|" + "---|" * (4 + len(QUESTIONS)))
    for kind in dict.fromkeys(sorted(each.fault.kind for each in judged)):
        lines.append(_row(kind, [each for each in judged if each.fault.kind == kind]))
    lines.append(_row("**all**", judged))
    return "\n".join(lines)


def _row(title: str, judged: Sequence[Judged]) -> str:
    wrong = Counter(question for each in judged for question in each.wrong)
    right = sum(each.is_right for each in judged)
    blamed = sum(bool(each.blames) for each in judged)
    cells = [title, len(judged), f"{right} ({100 * right / max(1, len(judged)):.0f} %)"]
    cells += [wrong[question] or "" for question in QUESTIONS]
    return "| " + " | ".join(str(cell) for cell in [*cells, blamed or ""]) + " |"


def report(judged: Sequence[Judged]) -> str:
    """The table, and the transcripts of what is wrong."""
    wrong = [transcript(each) for each in judged if not each.is_right]
    return "\n".join([*wrong, by_kind(judged)])


def transcript(judged: Judged) -> str:
    """What a person saw, and what was right."""
    fault, answer = judged.fault, judged.answer
    outcome = "right" if judged.is_right else f"wrong: {', '.join(judged.wrong) or 'blame'}"
    if judged.blames:
        outcome += f" (blames {judged.blames})"
    code = f" [{answer.code}]" if answer.code else ""
    said = "\n".join(f"    {line}" for line in answer.text.splitlines() or ["nothing"])
    return f"{fault.name}: {fault.about}\n  {outcome}\n  {answer.end}{code}\n{said}\n"
