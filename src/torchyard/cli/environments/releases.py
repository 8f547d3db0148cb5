"""`yard environment validate`, `validations`, `audit`, `release`, `releases`, `page`, `wheels`.

Owns: the verbs, their options, what they print.
Leaves: requests and waiting to client/releases/verbs.py.
Always: a validation that fails, an audit with a finding that fails, and a release that is refused
end with exit code 1; Ctrl-C leaves what was begun running.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import InvalidSpec, TorchyardError
from torchyard.cli.environments.export import to_file
from torchyard.cli.parsing import amounts
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import (
    Session,
    common,
    document_from,
    name_argument,
    names_of,
    takes_over,
    version_of,
    versioned,
)
from torchyard.cli.terminal import tables
from torchyard.shared.plurals import plural
from torchyard.shared.sizes import size_text

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.environments import Environments
    from torchyard.client.releases.verbs import EnvironmentRelease

_COMPLETED = "Completed"
_MOST_FIGURES = 60

_only = click.option(
    "--only", multiple=True, metavar="NAMES", help="Workloads to run. Default: all of them."
)
_compute = click.option(
    "--compute", default="", metavar="NAME", help="Cluster for the jobs. Default: local."
)
_workloads = click.option(
    "--workloads",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=None,
    metavar="DIR",
    help="Folder with workloads of your own: NAME.py with a function run().",
)
_no_wait = click.option("--no-wait", is_flag=True, help="Begin, print the job's name and return.")
_osv = click.option(
    "--osv",
    type=click.Path(path_type=Path, exists=True),
    default=None,
    metavar="FILE|FOLDER",
    help="Send these advisories in the OSV format first; they replace those sent before.",
)
_max_age = click.option(
    "--max-age-days",
    type=click.IntRange(min=0),
    default=None,
    help="Oldest known vulnerability that passes. Default: 30.",
)
_exceptions = click.option(
    "--exceptions",
    default="",
    metavar="FILE",
    help="YAML file of exceptions, each with id, reason and review_by.",
)


@click.command("validate", cls=Verb)
@name_argument("environment", "environments")
@versioned
@_only
@_compute
@_workloads
@_no_wait
@common
def validate(
    session: Session,
    name: str,
    version: str,
    label: str,
    only: tuple[str, ...],
    compute: str,
    workloads: Path | None,
    no_wait: bool,
) -> None:
    """Run workloads in an environment and store their report.

    Example: yard environment validate acpt-pytorch-2.13-cpu --only ddp-digits,fsdp2
    """
    name, version = version_of(name, version, label)
    environments = session.client().environments
    begun = environments.validate(
        name,
        "" if version == "latest" else version,
        only=_names(only),
        compute=compute,
        workloads=workloads,
    )
    _follow(session, environments, begun, no_wait)


@click.command("audit", cls=Verb)
@name_argument("environment", "environments")
@versioned
@_osv
@_max_age
@_exceptions
@click.option(
    "--sbom",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Write a bill of materials in CycloneDX 1.5 to FILE.",
)
@common
def audit(
    session: Session,
    name: str,
    version: str,
    label: str,
    osv: Path | None,
    max_age_days: int | None,
    exceptions: str,
    sbom: Path | None,
) -> None:
    """Look for known vulnerabilities in the packages of an environment.

    Example: yard environment audit acpt-pytorch-2.13-cpu --osv all.zip --sbom sbom.json
    """
    name, version = version_of(name, version, label)
    version = "" if version == "latest" else version
    environments = session.client().environments
    _send(environments, osv)
    if sbom is not None:
        document = environments.bill_of_materials(name, version)
        sbom.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        click.echo(f"Wrote `{sbom}`: {len(document['components'])} components.", err=True)
    excuses = _excuses(exceptions)
    with _located(excuses):
        audited = environments.audit(
            name, version, max_age_days=max_age_days, exceptions=excuses.value["exceptions"]
        )
    tables.one(session.form, audited.raw, lambda: _audit_page(audited.raw))
    if audited.failed:
        raise SystemExit(1)


@click.command("release", cls=Verb)
@name_argument("environment", "environments")
@_only
@_compute
@_workloads
@_osv
@_max_age
@_exceptions
@click.option("--dry-run", is_flag=True, help="Go through every gate and register nothing.")
@click.option(
    "--every",
    default="",
    metavar="TIME",
    help="Release every TIME from now on, as 14d, instead of now; `never` ends that.",
)
@takes_over
@_no_wait
@common
def release(
    session: Session,
    name: str,
    only: tuple[str, ...],
    compute: str,
    workloads: Path | None,
    osv: Path | None,
    max_age_days: int | None,
    exceptions: str,
    dry_run: bool,
    every: str,
    take_over: bool,
    no_wait: bool,
) -> None:
    """Make the next version of an environment, if every gate passes.

    Its requirements are resolved again, built, compared with the label, audited and validated. A
    gate that fails stops the release, and nothing is registered.

    Example: yard environment release vision --osv all.zip
    """
    environments = session.client().environments
    _send(environments, osv)
    excuses = _excuses(exceptions)
    options: dict[str, Any] = {
        "only": _names(only),
        "compute": compute,
        "workloads": workloads,
        "max_age_days": max_age_days,
        "exceptions": excuses.value["exceptions"],
    }
    with _located(excuses):
        if every:
            _schedule(session, environments, name, every, {**options, "take_over": take_over})
            return
        begun = environments.release(name, dry_run=dry_run, **options)
    _follow(session, environments, begun, no_wait)


_name = click.option("-n", "--name", default="", help="Environment name. Default: all of them.")
_argument = click.argument(
    "argument", metavar="[NAME]", required=False, shell_complete=names_of("environments")
)
_job = click.option(
    "--job", default="", metavar="NAME", help="Show one in full, by the name of its job."
)


@click.command("releases", cls=Verb)
@_argument
@_name
@_job
@click.option("--schedules", is_flag=True, help="List schedules instead.")
@common
def releases(session: Session, argument: str | None, name: str, job: str, schedules: bool) -> None:
    """List releases of environments, or show one with its gates and report.

    Example: yard environment releases vision
    """
    environments = session.client().environments
    if schedules:
        tables.rows(session.form, environments.release_schedules().raw, _SCHEDULE_COLUMNS)
        return
    _list(session, environments, name or argument or "", job, validations=False)


@click.command("validations", cls=Verb)
@_argument
@_name
@_job
@common
def validations(session: Session, argument: str | None, name: str, job: str) -> None:
    """List validations of environments, or show the report of one.

    Example: yard environment validations vision
    """
    environments = session.client().environments
    _list(session, environments, name or argument or "", job, validations=True)


@click.command("page", cls=Verb)
@name_argument("environment", "environments")
@versioned
@to_file
@common
def page(session: Session, name: str, version: str, label: str, file: Path | None) -> None:
    """Write a page about a version in Markdown: label, tests with figures, vulnerabilities by age.

    Example: yard environment page vision -f vision.md
    """
    name, version = version_of(name, version, label)
    text = session.client().environments.page(name, version or "latest")
    if file is None:
        tables.one(session.form, {"page": text}, lambda: text.rstrip("\n"))
        return
    file.write_text(text, encoding="utf-8")
    tables.done(session.form, {"path": str(file)}, f"Wrote `{file}`.")


@click.command("wheels", cls=Verb)
@name_argument("environment", "environments")
@click.option(
    "--prune", is_flag=True, help="Give up those of archived versions; `yard gc` removes them."
)
@common
def wheels(session: Session, name: str, prune: bool) -> None:
    """List the wheels that are kept for released versions, with their sizes.

    A build of such a version takes them first, and needs no package index for them.

    Example: yard environment wheels vision
    """
    environments = session.client().environments
    if prune:
        dropped = environments.forget_wheels(name)
        count, size = len(dropped["versions"]), size_text(dropped["size_bytes"])
        text = (
            f"Gave up the wheels of {count} archived {plural('version', count)}, {size}: "
            "`yard gc` removes those that no other version has."
        )
        tables.done(session.form, dropped, text if count else "No archived version keeps wheels.")
        return
    listed = [
        {
            "version": row["version"],
            "archived": row["archived"],
            "size_bytes": int(row["properties"][_WHEELS_BYTES]),
            "folder": row["properties"].get(_WHEELS_FOLDER, ""),
        }
        for row in environments.list(name, archived=True).raw
        if _WHEELS_BYTES in (row.get("properties") or {})
    ]
    tables.rows(session.form, listed, _WHEEL_COLUMNS)


def _list(
    session: Session, environments: Environments, name: str, job: str, *, validations: bool
) -> None:
    if job:
        shown = environments.get_release(job)
        tables.one(session.form, shown.raw, lambda: _page(shown))
        return
    listed = environments.releases(name, validations=validations)
    tables.rows(session.form, listed.raw, _COLUMNS)


_COLUMNS: list[tables.Column] = [
    ("JOB", lambda row: row["job"]),
    ("FROM", lambda row: row["base"]),
    ("VERSION", lambda row: row["version"]),
    ("STATUS", lambda row: row["status"]),
    ("PASSED", lambda row: row["passed"]),
    ("FAILED", lambda row: row["failed"]),
    ("SKIPPED", lambda row: row["skipped"]),
    ("CREATED", lambda row: row["created_at"]),
]
_WHEELS_BYTES = "torchyard.wheels_bytes"
_WHEELS_FOLDER = "torchyard.wheels_folder"
_WHEEL_COLUMNS: list[tables.Column] = [
    ("VERSION", lambda row: row["version"]),
    ("ARCHIVED", lambda row: "yes" if row["archived"] else ""),
    ("SIZE", lambda row: size_text(row["size_bytes"])),
    ("FOLDER", lambda row: row["folder"] or "the server's home"),
]
_SCHEDULE_COLUMNS: list[tables.Column] = [
    ("ENVIRONMENT", lambda row: row["environment"]),
    ("EVERY", lambda row: f"{row['every_s'] / 86400:g} d"),
    ("NEXT", lambda row: row["next_at"]),
    ("LAST JOB", lambda row: row["last_job"]),
    ("OWNER", lambda row: row["owner"]),
]


def _names(only: tuple[str, ...]) -> list[str]:
    return [name.strip() for text in only for name in text.split(",") if name.strip()]


def _send(environments: Environments, osv: Path | None) -> None:
    if osv is not None:
        count = environments.send_advisories(osv)
        click.echo(f"Sent {count} advisories about packages of PyPI.", err=True)


def _excuses(file: str) -> Document:
    """The document of exceptions; an empty list of them without a file."""
    document = document_from(file, ())
    if file and not isinstance(document.value.get("exceptions"), list):
        raise InvalidSpec(
            f"`{file}` has no list `exceptions`",
            "write `exceptions:` and below it `- {id: CVE-…, reason: …, review_by: 2027-01-31}`",
        )
    document.value.setdefault("exceptions", [])
    return document


class _located:
    """Errors about exceptions say where in their file."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TorchyardError) and self._document.value["exceptions"]:
            raise self._document.locate(error) from error.__cause__


def _schedule(
    session: Session, environments: Environments, name: str, every: str, options: Mapping[str, Any]
) -> None:
    if every.strip().lower() == "never":
        environments.unschedule_releases(name)
        tables.done(
            session.form, {"environment": name}, f"`{name}` is not released by a schedule any more."
        )
        return
    made = environments.schedule_releases(name, amounts.seconds(every), **options)
    tables.done(
        session.form,
        made.raw,
        f"`{name}` is released every {every}, next at {made.next_at}.",
    )


def _follow(
    session: Session, environments: Environments, begun: EnvironmentRelease, no_wait: bool
) -> None:
    """Print gates as they come, then the whole; exit with 1 unless it went well."""
    click.echo(f"job: {begun.job}", err=True)
    if no_wait:
        tables.one(session.form, begun.raw, lambda: begun.job)
        return
    messages: set[str] = set()

    def say(release: EnvironmentRelease) -> None:
        for gate in release.gates:
            if gate.name not in messages:
                click.echo(f"{gate.name}: {gate.status}", err=True)
            messages.add(gate.name)
        if not release.ended and release.stage and release.stage not in messages:
            click.echo(f"{release.stage} …", err=True)

    ended = environments.wait_for_release(begun.job, say)
    tables.one(session.form, ended.raw, lambda: _page(ended))
    if ended.status != _COMPLETED:
        raise SystemExit(1)


def _page(release: EnvironmentRelease) -> str:
    raw = release.raw
    rows: list[tuple[str, Any]] = [
        ("job", release.job),
        ("from", release.base),
        ("version", release.version),
        ("status", release.status),
    ]
    parts = [tables.fields(rows)]
    if release.gates:
        parts.append("Gates\n" + "\n".join(_gate(gate.raw) for gate in release.gates))
    if release.changes:
        parts.append("Changes\n" + "\n".join(f"  {line}" for line in release.changes))
    if raw.get("audit"):
        parts.append(_audit_page(raw["audit"]))
    if raw.get("report"):
        parts.append(_report(raw["report"]))
    if raw.get("error"):
        parts.append(f"error: {raw['error']['message']}\nhint: {raw['error']['hint']}")
    return "\n\n".join(parts)


def _gate(gate: Mapping[str, Any]) -> str:
    first, *more = str(gate["message"]).splitlines() or [""]
    others = f" (and {len(more)} more {plural('line', len(more))})" if more else ""
    return f"  {gate['status']:<8} {gate['name']:<9} {first}{others}"


def _report(report: Mapping[str, Any]) -> str:
    nodes = [
        ", ".join([node["cpu"], f"{node['cores']} cores", *node["gpus"]])
        for node in report["hardware"]
    ]
    lines = [
        f"Validation of {report['environment']} on {'; '.join(nodes) or 'no node'}: "
        f"{report['passed']} passed, {report['failed']} failed, {report['skipped']} skipped"
    ]
    label = report.get("label")
    if label is not None:
        lines += [f"  WRONG    label: {difference}" for difference in label["differences"]]
        if not label["differences"]:
            lines.append(f"  passed   label: {_answered(label)}")
    for row in report["workloads"]:
        figures = ", ".join(f"{key} {_figure(value)}" for key, value in row["figures"].items())
        shown = row["reason"] or figures
        lines.append(f"  {row['status']:<8} {row['name']:<24} {row['seconds']:7.1f} s  {shown}")
    return "\n".join(lines)


def _answered(label: Mapping[str, Any]) -> str:
    """What the environment said of itself."""
    torch = f", torch {label['torch']}" if label["torch"] else ""
    cuda = f" for CUDA {label['cuda']}" if label["cuda"] else ""
    return (
        f"{len(label['packages'])} packages, Python {label['python']}{torch}{cuda}, "
        f"{label['machine']}, as it says"
    )


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:_MOST_FIGURES]


def _audit_page(audited: Mapping[str, Any]) -> str:
    advisory_set, count = audited["advisories"], len(audited["findings"])
    lines = [
        f"Audit: {audited['packages']} packages against {advisory_set['count']} advisories of "
        f"{str(advisory_set['replaced_at'])[:10]}: {count} {plural('finding', count)}, "
        f"{audited['failed']} fail, {audited['excused']} excused; "
        f"oldest that passes: {audited['max_age_days']} days"
    ]
    lines += [f"  {_finding(finding)}" for finding in audited["findings"]]
    for exception in audited["unused_exceptions"]:
        lines.append(f"  exception {exception['id']} excuses nothing here")
    for exception in audited["overdue_exceptions"]:
        lines.append(
            f"  FAIL     exception {exception['id']} was to be reviewed by {exception['review_by']}"
        )
    if audited["without_hash"]:
        lines.append(f"  no hash is known of {', '.join(audited['without_hash'])}")
    return "\n".join(lines)


def _finding(finding: Mapping[str, Any]) -> str:
    age = "no date" if finding["age_days"] is None else f"{finding['age_days']} days"
    fixed = f", fixed in {', '.join(finding['fixed'])}" if finding["fixed"] else ""
    mark = "FAIL" if finding["fails"] else finding["status"]
    package = f"{finding['package']} {finding['version']}"
    line = f"{mark:<8} {package}  {', '.join(finding['ids'])}  {age}{fixed}  {finding['summary']}"
    exception = finding["exception"]
    if exception is not None:
        line += f"\n           exception until {exception['review_by']}: {exception['reason']}"
    return line
