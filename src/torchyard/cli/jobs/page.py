"""The page of one job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torchyard.base.terminal_text import plain
from torchyard.cli.jobs import causes
from torchyard.cli.terminal import tables
from torchyard.shared.plurals import plural

_LONGEST_VALUE = 100
_MOST_PAIRS = 20


def page(job: Mapping[str, Any]) -> str:
    """The page of one job."""
    nodes, processes = job.get("node_count") or 1, job.get("processes_per_node") or 1
    ranks = f"{nodes} {plural('node', nodes)} of {processes} {plural('process', processes)}"
    running = (
        ("Compute", f"{job.get('compute') or 'local'}, {ranks}"),
        ("Priority", _priority(job)),
    )
    is_pipeline = job.get("type") == "pipeline"  # its steps say where they run
    took = tables.since(job.get("started_at"), job.get("ended_at"), job.get("duration_s"))
    exit_code = job.get("exit_code")
    cause = causes.sentence(job)
    parts = [
        *([cause] if cause else []),
        tables.fields(
            [
                ("Name", job["name"]),
                ("Display name", plain(job.get("display_name"))),
                ("Status", tables.status(job["status"])),
                ("Waiting for", job.get("waiting")),
                ("Experiment", job.get("experiment_name")),
                ("Part of", plain(job.get("parent") or "")),
                *(() if is_pipeline else running),
                ("Created", f"{tables.moment(job.get('created_at'))} by {job.get('owner')}"),
                ("Took", took),
                ("Exit code", str(exit_code) if exit_code is not None else ""),
                ("Cloned from", (job.get("properties") or {}).get("torchyard.cloned_from")),
                ("Rehearsal", "on the CPU instead of GPUs" if job.get("rehearsal") else ""),
            ]
        ),
    ]
    sections: list[tuple[str, str]] = [
        ("Stages", _stages(job)),
        ("Notices", "\n".join(f"  {plain(notice)}" for notice in job.get("notices") or [])),
        ("Tags", _pairs(job.get("tags"), str)),
        ("Parameters", _parameters(job)),
        ("Metrics (last values)", metrics_text(job)),
        ("Tables", _tables(job)),
        ("Outputs", _outputs(job)),
        ("Models", "\n".join(f"  {m['name']}:{m['version']}" for m in job.get("models") or [])),
    ]
    parts += [f"{heading}\n{text}" for heading, text in sections if text]
    parts += [text for text in (causes.context(job.get("error") or {}),) if text]
    return "\n\n".join(parts)


def _priority(job: Mapping[str, Any]) -> str:
    spot = ", and may be preempted (spot)" if job.get("job_tier") == "spot" else ""
    return f"{job.get('priority') or ''}{spot}"


def _stages(job: Mapping[str, Any]) -> str:
    lines = []
    for stage in job.get("stages") or []:
        took = tables.since(stage.get("start"), stage.get("end"), stage.get("duration_s"))
        running = "" if stage.get("end") else " so far"
        waited = stage.get("waited_for")
        lines.append((f"  {stage['name']}", f"{took}{running}" + (f"  {waited}" if waited else "")))
    return tables.fields(lines)


def _pairs(values: dict[str, Any] | None, shown: Callable[[Any], str]) -> str:
    return tables.fields(
        (f"  {plain(key)}", _short(plain(shown(value)))) for key, value in (values or {}).items()
    )


def _parameters(job: Mapping[str, Any]) -> str:
    params = list((job.get("params") or {}).items())
    text = _pairs(dict(params[:_MOST_PAIRS]), str)
    if (more := len(params) - _MOST_PAIRS) > 0:
        text += f"\n  and {more} more: `yard job show -n {job['name']} -o json`"
    return text


def metrics_text(job: Mapping[str, Any]) -> str:
    """The last value of each metric; of many those of the newest, and how to see the rest."""
    metrics = job.get("metrics") or {}
    keys = list(metrics)
    if len(keys) > _MOST_PAIRS:
        keys = [key for key in job.get("newest_metrics") or keys if key in metrics][:_MOST_PAIRS]
    text = tables.fields((f"  {plain(key)}", tables.number(metrics[key])) for key in keys)
    if len(metrics) > len(keys):
        text += f"\n  and {len(metrics) - len(keys)} older: `yard job metrics -n {job['name']}`"
    return text


def _tables(job: Mapping[str, Any]) -> str:
    """What SDK v1 logged as tables, lists and rows."""
    counts = job.get("tables") or {}
    lines = [(f"  {plain(key)}", f"{n} {plural('row', n)}") for key, n in counts.items()]
    rest = f"\n  see them with `yard job metrics -n {job['name']}`" if lines else ""
    return tables.fields(lines) + rest


def _short(text: str) -> str:
    """A tag may hold a document, as MLflow's `mlflow.log-model.history`; `-o json` has it whole."""
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _outputs(job: Mapping[str, Any]) -> str:
    named_outputs = (job.get("spec") or {}).get("outputs") or {}
    lines = [f"  {name}" for name in named_outputs]
    if job["status"] in ("Completed", "Failed", "Canceled"):
        lines.append(f"  download them with `yard job download -n {job['name']} --all`")
    return "\n".join(lines)
