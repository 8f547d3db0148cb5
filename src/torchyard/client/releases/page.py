"""The page of one version of an environment, in Markdown.

Owns: how its label, content, tests, vulnerabilities and packages are written.
Leaves: fetching them to client/environments.py.
Always: of each workload the newest result on each kind of hardware; findings the oldest first; what
is not known is said to be so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchyard.client.resources import Json
from torchyard.shared.plurals import plural
from torchyard.shared.sizes import size_text

_UNKNOWN = "not known"


def page(
    version: Json, reports: Sequence[Json], audit: Json | None = None, why_no_audit: str = ""
) -> str:
    """The page.

    Args:
        version: as `Environments.get` reads it.
        reports: its validations, and the release that made it, the newest first.
        audit: its packages against known vulnerabilities.
        why_no_audit: why there is none.
    """
    lines = [
        f"# {version['name']}:{version['version']}",
        "",
        *_about(version, reports),
        "## Tests",
        "",
        *_tests(version, reports),
        "## Known vulnerabilities",
        "",
        *(_findings(audit) if audit is not None else [f"{_sentence(why_no_audit)}"]),
        "",
        "## Packages",
        "",
        ", ".join(f"`{line}`" for line in version.get("packages") or ()) or _UNKNOWN,
    ]
    return "\n".join(lines) + "\n"


def _about(version: Json, reports: Sequence[Json]) -> Iterator[str]:
    label = _label(reports)
    contents: Json = next((each["contents"] for each in reports if each.get("contents")), {})
    there = {**version, **contents, **{key: value for key, value in label.items() if value}}
    size_bytes = contents.get("size_bytes") or version.get("size_bytes")
    release = next((each for each in reports if each["kind"] == "release"), {})
    if version.get("description"):
        yield from (_sentence(str(version["description"])), "")
    yield from ("| label | |", "|---|---|")
    rows = {
        "Python": there.get("python"),
        "torch": there.get("torch"),
        "CUDA": there.get("cuda"),
        "machine": there.get("machine"),
        "packages": len(version.get("packages") or ()),
        "size": size_text(size_bytes) if size_bytes else _UNKNOWN,
        "released": release and f"{release['created_at'][:10]} from {release['base']}",
        "created": str(version.get("created_at") or "")[:10],
        "deprecated from": version.get("deprecated"),
        "archived": "yes, it still runs" if version.get("archived") else "",
    }
    yield from (f"| {name} | {_cell(value)} |" for name, value in rows.items() if value)
    yield from ("", _compared(label), "")
    if release.get("changelog"):
        yield from ("What moved:", "")
        yield from (f"- {line}" for line in str(release["changelog"]).splitlines())
        yield ""


def _label(reports: Sequence[Json]) -> Json:
    """What the environment answered in its last validation."""
    labels = (each["report"].get("label") for each in reports if each.get("report"))
    return next((label for label in labels if label), {})


def _compared(label: Json) -> str:
    if not label:
        return "No validation has compared this label with what the environment answers."
    if not label["differences"]:
        count = len(label["packages"])
        return f"The environment answers what the label says: {count} packages, all of the above."
    return f"The label is wrong: {'; '.join(label['differences'])}."


def _tests(version: Json, reports: Sequence[Json]) -> Iterator[str]:
    rows = _results(reports)
    recorded = version.get("tests") or ()
    for run in recorded:
        failed = f", failed: {', '.join(run['failed'])}" if run["failed"] else ""
        yield f"- {run['steps']} one-step tests on {run['hardware']}, {run['date']}{failed}"
    if recorded:
        yield ""
    if not rows:
        yield "No validation of this version is stored: `yard environment validate` runs one."
    else:
        yield "| workload | result | figures | seconds | hardware | date |"
        yield "|---|---|---|---|---|---|"
        yield from (f"| {' | '.join(_cell(value) for value in row)} |" for row in rows)
    yield ""


def _results(reports: Sequence[Json]) -> list[tuple[Any, ...]]:
    """One row for each workload on each kind of hardware."""
    rows: dict[tuple[str, str], tuple[Any, ...]] = {}
    for report in (each["report"] for each in reports if each.get("report")):
        hardware = "; ".join(_node(node) for node in report["hardware"]) or _UNKNOWN
        for result in report["workloads"]:
            figures = ", ".join(
                f"{key} {_figure(value)}" for key, value in result["figures"].items()
            )
            rows.setdefault(
                (result["name"], hardware),
                (
                    f"`{result['name']}`",
                    result["status"],
                    result["reason"] or figures,
                    f"{result['seconds']:.1f}",
                    hardware,
                    str(report["ended_at"] or "")[:10],
                ),
            )
    return list(rows.values())


def _node(node: Mapping[str, Any]) -> str:
    return ", ".join([str(node["cpu"]), f"{node['cores']} cores", *node["gpus"]])


def _findings(audit: Json) -> Iterator[str]:
    advisories, count = audit["advisories"], len(audit["findings"])
    yield (
        f"{audit['packages']} packages against {advisories['count']} advisories of "
        f"{str(advisories['replaced_at'])[:10]}: {count} {plural('finding', count)}, "
        f"{audit['failed']} too old, {audit['excused']} excused."
    )
    if not audit["findings"]:
        return
    yield from ("", "| age in days | package | vulnerability | fixed in | state |")
    yield "|---|---|---|---|---|"
    for finding in sorted(audit["findings"], key=_age, reverse=True):
        exception = finding["exception"]
        state = finding["status"]
        if exception is not None:
            state += f" until {exception['review_by']}: {exception['reason']}"
        cells = (
            _UNKNOWN if finding["age_days"] is None else finding["age_days"],
            f"{finding['package']} {finding['version']}",
            ", ".join(finding["ids"]),
            ", ".join(finding["fixed"]),
            state,
        )
        yield f"| {' | '.join(_cell(value) for value in cells)} |"


def _age(finding: Mapping[str, Any]) -> float:
    """One without a date counts as the oldest."""
    return float("inf") if finding["age_days"] is None else float(finding["age_days"])


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
