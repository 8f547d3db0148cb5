"""`yard doctor`: diagnose this machine.

Owns: the verb, its report, its exit code.
Leaves: each check to checks.py.
Always: nothing is started, changed or left behind.
"""

from __future__ import annotations

import os

import click

from torchyard.cli.doctor import checks
from torchyard.cli.doctor.findings import Finding
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common
from torchyard.cli.terminal import tables

_COLOURS = {"ok": "green", "note": "yellow", "wrong": "red"}


@click.command("doctor", cls=Verb)
@common
def doctor(session: Session) -> int:
    """Diagnose this machine; the exit code is 1 if a check is `wrong`.

    `ok` needs nothing, `note` limits something, `wrong` keeps jobs from running.

    Example: yard doctor
    """
    findings = checks.all_of(session.settings, os.environ)
    form = session.form
    if form.kind == "table":
        for finding in findings:
            _print(finding)
        wrong = sum(finding.status == "wrong" for finding in findings)
        click.echo(f"\n{wrong} wrong." if wrong else "\nNothing is wrong.")
    else:
        tables.rows(
            form,
            [dict(vars(finding)) for finding in findings],
            [
                ("STATUS", lambda row: row["status"]),
                ("CHECK", lambda row: row["check"]),
                ("RESULT", lambda row: row["result"]),
                ("REMEDY", lambda row: row["remedy"]),
            ],
        )
    return 1 if any(finding.status == "wrong" for finding in findings) else 0


def _print(finding: Finding) -> None:
    status = click.style(f"{finding.status:<6}", fg=_COLOURS[finding.status])
    click.echo(f"{status} {finding.check:<12} {finding.result}")
    if finding.remedy:
        click.echo(" " * 20 + click.style("do:", bold=True) + f" {finding.remedy}")
