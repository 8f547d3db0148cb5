"""`yard demo`: train a small network on two nodes of this machine.

Owns: the commands that it runs, which are those that a person would type.
Leaves: the job and its script to the example `digits`.
"""

from __future__ import annotations

import os
import time

import click

from torchyard.cli import examples
from torchyard.cli.parsing.group import Verb, run
from torchyard.client.client import Client

_LEAST_ACCURACY = 0.95
_WHERE = """
Where everything is
  the job       yard job show -n {job}
  its logs      yard job stream -n {job}
  its files     yard job download -n {job}
  the model     yard model show -n digits
  its file      yard model download -n digits
  all jobs      yard job list
The server goes on running for the next job; `yard server stop` ends it."""


@click.command("demo", cls=Verb)
def demo() -> int:
    """Train a small network on two local nodes, and register it as a model.

    Example: yard demo
    """
    job = f"digits-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}"
    file = str(examples.folder("digits") / "job.yml")
    model = f"azureml://jobs/{job}/outputs/artifacts/paths/outputs/model.pt"
    for arguments in (
        ["job", "create", "-f", file, "-n", job, "--stream"],
        ["model", "create", "-n", "digits", "-p", model],
    ):
        click.echo(f"\n$ yard {' '.join(arguments)}")
        code = run(arguments)
        if code:
            return code
    accuracy = Client().jobs.get(job).raw["metrics"]["accuracy"]
    click.echo(f"\nTest accuracy {accuracy:.4f}")
    if accuracy < _LEAST_ACCURACY:
        click.echo(f"error: test accuracy is below {_LEAST_ACCURACY}", err=True)
        return 1
    click.echo(_WHERE.format(job=job))
    return 0
