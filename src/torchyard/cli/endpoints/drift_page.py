"""The table that `yard online-deployment drift` prints.

Owns: its lines, and how thresholds are written.
Leaves: the comparison to client/drift/.
Always: names of columns and categories are printed without control characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchyard.base.errors import InvalidInput
from torchyard.base.terminal_text import plain

if TYPE_CHECKING:
    from torchyard.client.drift.columns import ColumnDrift
    from torchyard.client.drift.comparison import DriftReport

_HEADINGS = ("COLUMN", "KIND", "RESULT", "PSI", "TEST", "P", "JS", "MISSING", "WHY")
_WIDEST = 40


def read_thresholds(written: Sequence[str]) -> dict[str, float]:
    """`psi=0.2` as a mapping.

    Raises:
        InvalidInput: it is written otherwise.
    """
    values = {}
    for text in written:
        name, _, value = text.partition("=")
        try:
            values[name.strip().replace("-", "_")] = float(value)
        except ValueError:
            raise InvalidInput(
                f"`--threshold {text[:80]}` is not a threshold", "write `--threshold psi=0.2`"
            ) from None
    return values


def text_of(report: DriftReport) -> str:
    lines = [_HEADINGS, *(_cells(each) for each in report.columns)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    page = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    collected, reference = report.collected, report.reference
    drifted = ", ".join(_plain(name) for name in report.drifted)
    count = f"{len(report.drifted)} of {len(report.columns)} columns have drifted"
    page += [
        "",
        f"{count}: {drifted}" if drifted else count,
        f"Collected: {collected.rows} rows of {_plain(collected.data)}",
        f"Training: {reference.rows} rows of {_plain(reference.data)}",
    ]
    for side, reason in (("collected", "not collected"), ("reference", "not in the training data")):
        names = [_plain(name) for name, lacks in report.left_out.items() if lacks == side]
        if names:
            page.append(f"Left out, {reason}: {', '.join(names[:20])}")
    return "\n".join(page)


def _cells(column: ColumnDrift) -> tuple[str, ...]:
    values = column.statistics
    test = p_value = ""
    for name, short in (("ks", "KS"), ("chi_squared", "chi2")):
        if name in values:
            test, p_value = f"{short} {values[name]:.3g}", f"{values[f'{name}_p_value']:.2g}"
    missing = f"{column.reference.missing_share:.1%} > {column.collected.missing_share:.1%}"
    why = [f"{each.statistic} {each.value:.2g} ({each.threshold:.2g})" for each in column.reasons]
    if column.new_categories:
        why.append("new: " + ", ".join(_plain(each) for each in column.new_categories[:3]))
    return (
        _plain(column.column),
        column.kind,
        column.result,
        f"{values['psi']:.3f}" if "psi" in values else "",
        test,
        p_value,
        f"{values['jensen_shannon']:.3f}" if "jensen_shannon" in values else "",
        missing,
        ", ".join(why),
    )


def _plain(text: str) -> str:
    return str(plain(text)).replace("\n", " ").replace("\t", " ")[:_WIDEST]
