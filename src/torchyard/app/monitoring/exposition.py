"""Prometheus' text format.

Owns: families of samples, and their text.
Leaves: the numbers to the other modules of this package.
Always: a family is written once, with its help and type in front of its samples.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text format 0.0.4)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Sample:
    """One number; `suffix` is `_bucket`, `_sum` or `_count` in a histogram."""

    value: float
    labels: Labels = field(default_factory=dict)
    suffix: str = ""


@dataclass(frozen=True)
class Family:
    """The samples of one name.

    Args:
        type: `counter`, `gauge` or `histogram`. A counter's name ends with `_total`.
    """

    name: str
    help: str
    type: str
    samples: tuple[Sample, ...]


def gauge(name: str, help: str, value: float) -> Family:
    return Family(name, help, "gauge", (Sample(value),))


def counter(name: str, help: str, value: float) -> Family:
    return Family(name, help, "counter", (Sample(value),))


def by_label(
    name: str, help: str, type: str, label: str, values: Iterable[tuple[str, float]]
) -> Family:
    """A family with one label."""
    return Family(name, help, type, tuple(Sample(value, {label: key}) for key, value in values))


def text_of(families: Iterable[Family]) -> str:
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.type}")
        for sample in family.samples:
            labels = ",".join(f'{key}="{_quoted(sample.labels[key])}"' for key in sample.labels)
            shown = f"{{{labels}}}" if labels else ""
            lines.append(f"{family.name}{sample.suffix}{shown} {number(sample.value)}")
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """As Prometheus and Go write floats."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
