"""The page of a sweep: the best so far, its trials, charts as text.

Owns: the tables of trials and rungs, and the charts.
Leaves: a job's page to page.py, lines and axes to terminal/plots.py.
Always: values are sorted as the sweep's goal says; a trial without a value comes last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torchyard.base.fields import literal
from torchyard.base.terminal_text import plain
from torchyard.cli.terminal import plots, tables

if TYPE_CHECKING:
    from torchyard.client.client import Client
    from torchyard.client.job import Job
    from torchyard.client.trials.trials import Rung, SweepTrials, Trial

_MOST_ROWS = 20
_BAR = 30
_LANES = 11


def below(client: Client, job: Job, plotted: bool) -> str:
    """What is shown of a sweep below its job's page.

    Args:
        plotted: with charts.
    """
    from torchyard.cli.jobs import metrics

    sweep_trials = job.trials()
    parts = [page(sweep_trials), rungs(client.sweeps.rungs(job.name))]
    if plotted:
        importances, missing = client.sweeps.importances(job.name)
        parts.append(charts(sweep_trials, importances, missing, metrics.chart_style()))
    return "\n\n".join(filter(None, parts))


def page(sweep_trials: SweepTrials) -> str:
    """The best trial, and all of them as a table."""
    raw = sweep_trials.raw
    counts: dict[str, int] = {}
    for trial in sweep_trials.trials:
        counts[trial.outcome or "live"] = counts.get(trial.outcome or "live", 0) + 1
    shown = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    best, metric = sweep_trials.best, plain(sweep_trials.primary_metric)
    parts = [
        tables.fields(
            [
                ("Trials", f"{len(sweep_trials.trials)} of {raw['max_total_trials']}"
                 + (f": {shown}" if shown else "")),
                ("Search", f"{raw['sampling']}, {sweep_trials.goal} {metric}"),
                ("Best", _best(best, sweep_trials) if best else "none yet"),
            ]
        )
    ]  # fmt: skip
    ordered = best_first(sweep_trials)
    if ordered:
        rows = [trial.raw for trial in ordered[:_MOST_ROWS]]
        parts.append(tables.table_text(rows, columns(sweep_trials)))
    if len(ordered) > _MOST_ROWS:
        parts.append(f"{len(ordered) - _MOST_ROWS} more: `yard job trials -n {sweep_trials.name}`")
    return "\n\n".join(parts)


def _best(best: Trial, sweep_trials: SweepTrials) -> str:
    values = " ".join(f"{name}={_value(value)}" for name, value in best.parameters.items())
    return plain(
        f"{best.name}, {_which(sweep_trials)} {sweep_trials.primary_metric} "
        f"{tables.number(best.value)}  ({values})"
    )


def best_first(sweep_trials: SweepTrials) -> list[Trial]:
    sign = 1 if sweep_trials.goal == "minimize" else -1

    def key(trial: Trial) -> tuple[bool, float, int]:
        failed = trial.value is None or trial.outcome in ("failed", "canceled")
        return failed, sign * (trial.value or 0.0), trial.number

    return sorted(sweep_trials.trials, key=key)


def columns(sweep_trials: SweepTrials) -> list[tables.Column]:
    names = list(dict.fromkeys(name for trial in sweep_trials.trials for name in trial.parameters))
    return [
        ("TRIAL", lambda row: row["name"]),
        ("STATUS", _status),
        (f"{_which(sweep_trials)} {plain(sweep_trials.primary_metric)}", partial(_metric)),
        *((plain(name), partial(_parameter, name)) for name in names),
        ("TOOK", lambda row: tables.since(row["started_at"], row["ended_at"], row["duration_s"])),
        ("REASON", lambda row: row["reason"]),
    ]


def _which(sweep_trials: SweepTrials) -> str:
    """Which of a trial's values is shown: of the only objective the best, of several the last."""
    return "best" if len(sweep_trials.raw["objectives"]) == 1 else "last"


def _status(row: Mapping[str, Any]) -> str:
    return str(row["status"] or "deleted")


def _metric(row: Mapping[str, Any]) -> str:
    return tables.number(row["values"][0]) if row["values"] else ""


def _parameter(name: str, row: Mapping[str, Any]) -> str:
    return _value(row["parameters"].get(name, ""))


def _value(value: Any) -> str:
    return tables.number(value) if isinstance(value, float) else literal(value)


def rungs(results: Sequence[Rung]) -> str:
    """The table of rungs, the highest first; empty where the policy has none."""
    if not results:
        return ""
    highest_first = sorted(results, key=lambda rung: (-rung.interval, rung.bracket, rung.rank))
    counts: dict[str, int] = {}
    for result in results:
        counts[result.decision] = counts.get(result.decision, 0) + 1
    shown = ", ".join(f"{count} {decision}" for decision, count in counts.items())
    rows = [result.raw for result in highest_first[:_MOST_ROWS]]
    parts = [f"Rungs: {shown}\n{tables.table_text(rows, rung_columns(results))}"]
    if len(results) > _MOST_ROWS:
        parts.append(f"{len(results) - _MOST_ROWS} more: `yard job trials --rungs`")
    return "\n\n".join(parts)


def rung_columns(results: Sequence[Rung]) -> list[tables.Column]:
    has_brackets = any(result.bracket for result in results)
    brackets: list[tables.Column] = [("BRACKET", lambda row: str(row["bracket"]))]
    return [
        *(brackets if has_brackets else ()),
        ("INTERVAL", lambda row: str(row["interval"])),
        ("TRIAL", lambda row: row["trial"]),
        ("VALUE", lambda row: "" if row["value"] is None else tables.number(float(row["value"]))),
        ("RANK", lambda row: f"{row['rank']} of {row['reached']}"),
        ("DECISION", lambda row: row["decision"]),
    ]


def charts(
    sweep_trials: SweepTrials, importances: Mapping[str, float], missing: str, style: plots.Style
) -> str:
    """The history of the best, parallel coordinates and importances, as text."""
    parts = [
        _history(sweep_trials, style),
        _coordinates(sweep_trials),
        _importances(importances, missing),
    ]
    return "\n\n".join(part for part in parts if part)


def _history(sweep_trials: SweepTrials, style: plots.Style) -> str:
    pick: Callable[[float, float], float] = min if sweep_trials.goal == "minimize" else max
    columns, best = [], None
    for trial in sweep_trials.trials:
        if trial.value is None or trial.outcome in ("failed", "canceled"):
            continue
        best = trial.value if best is None else pick(best, trial.value)
        columns.append((float(trial.number), best, best))
    line = plots.Line(sweep_trials.primary_metric, columns)
    return plots.draw([line], style, f"Best {sweep_trials.primary_metric} by trial")


def _coordinates(sweep_trials: SweepTrials) -> str:
    """Each parameter as a lane from its lowest to its highest value.

    A letter is a trial, the best one `a`; where several meet, the better one is shown.
    """
    done = [trial for trial in best_first(sweep_trials) if trial.value is not None][:26]
    names = list(dict.fromkeys(name for trial in done for name in trial.parameters))
    if len(done) < 2 or not names:
        return ""
    lanes: list[tuple[str, list[Any]]] = [
        (name, [trial.parameters.get(name) for trial in done]) for name in names
    ]
    lanes.append((sweep_trials.primary_metric, [trial.value for trial in done]))
    lines = []
    for name, values in lanes:
        low, high, fractions = _scale(values)
        cells = ["·"] * (_LANES * 4)
        for rank in reversed(range(len(values))):
            fraction = fractions[rank]
            if fraction is not None:
                cells[round(fraction * (len(cells) - 1))] = chr(ord("a") + rank)
        lines.append((f"  {plain(name)}", f"{low:>10} {''.join(cells)} {high}"))
    return "Parallel coordinates (a is the best trial)\n" + tables.fields(lines)


def _scale(values: Sequence[Any]) -> tuple[str, str, list[float | None]]:
    """(the lowest, the highest, where each value is between them, from 0 to 1)."""
    present = [value for value in values if value is not None]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        numbers = sorted(float(value) for value in present)
        low, high = numbers[0], numbers[-1]
        is_log = low > 0 and high / low > 100
        scale: Callable[[float], float] = math.log if is_log else float
        width = scale(high) - scale(low)
        fractions = [
            None if value is None else (scale(value) - scale(low)) / width if width else 0.5
            for value in values
        ]
        return tables.number(low), tables.number(high), fractions
    order = list(dict.fromkeys(sorted(str(value) for value in present)))
    last = max(len(order) - 1, 1)
    return (
        plain(order[0][:10]),
        plain(order[-1]),
        [None if value is None else order.index(str(value)) / last for value in values],
    )


def _importances(importances: Mapping[str, float], missing: str) -> str:
    if missing:
        return f"Importances: {missing}"
    lines = [
        (f"  {plain(name)}", f"{'█' * round(value * _BAR)} {value:.0%}")
        for name, value in importances.items()
    ]
    return "Importances\n" + tables.fields(lines)
