"""What a sweep searches for: `objective`, and the others in `torchyard: {objectives: …}`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torchyard.base.documents.checks import At, By, Choice, Key
from torchyard.base.documents.models import Document, declared, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described

_MOST = 10


@dataclass(frozen=True)
class Objective:
    primary_metric: str
    goal: str
    """`minimize` or `maximize`."""


def _metric(value: Any, at: At) -> str:
    if not isinstance(value, str) or not 0 < len(value.strip()) <= 255:
        raise InvalidSpec(
            f"`primary_metric` must be the name of a metric, not {described(value)}",
            "name one that the script logs, for example `primary_metric: val_loss`",
            at=at,
        )
    return value


class ObjectiveFile(Document):
    subject: ClassVar[str] = "an objective"
    example: ClassVar[str] = "{goal: minimize, primary_metric: val_loss}"

    goal: str = declared("", "`minimize`, `maximize`", Choice(minimize=Key(), maximize=Key()))
    primary_metric: str = declared(..., "one that the script logs", By(_metric))

    @rule("goal")
    def _goal(self) -> None:
        if not self.goal:
            raise InvalidSpec("`goal` is missing", "use one of: minimize, maximize")


def read(value: Any, at: At) -> Objective:
    file = ObjectiveFile.read(value, at)
    return Objective(file.primary_metric, file.goal)


def joined(first: Objective | None, several: tuple[Objective, ...]) -> tuple[Objective, ...]:
    """All objectives, the sweep's own one first.

    Raises:
        InvalidSpec: there is none, or one twice.
    """
    others = [objective for objective in several if objective != first]
    objectives = others if first is None else [first, *others]
    if not objectives:
        raise InvalidSpec(
            "the sweep has no `objective`",
            "for example `objective: {goal: minimize, primary_metric: val_loss}`",
        )
    metrics = [objective.primary_metric for objective in objectives]
    if len(set(metrics)) < len(metrics) or len(metrics) > _MOST:
        raise InvalidSpec(
            f"a metric is an objective twice, or there are more than {_MOST} objectives",
            "name each metric once",
            at=("properties", "torchyard.objectives"),
        )
    return tuple(objectives)
