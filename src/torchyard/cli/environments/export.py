"""`yard environment export` and `install`: an environment as a file, an OCI image or a folder.

Owns: the options of each, progress of an image.
Leaves: files and images to client/.
Always: options of the one are refused with the other.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from torchyard.base.errors import InvalidInput
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import (
    Session,
    common,
    name_argument,
    names_of,
    reference_of,
    versioned,
    warn,
)
from torchyard.cli.terminal import tables
from torchyard.cli.terminal.progress import Progress
from torchyard.client.images.steps import Steps
from torchyard.shared.plurals import plural
from torchyard.shared.sizes import size_text


@dataclass(frozen=True)
class _ImageOptions:
    """The options that only an image has; empty ones were not given."""

    image: Path | None
    push: str
    base: str
    overwrite: bool
    plain_http: bool

    @property
    def is_wanted(self) -> bool:
        return self.image is not None or bool(self.push)


to_file = click.option(
    "--file",
    "-f",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Write to FILE. Default: print it.",
)


@click.command("export", cls=Verb)
@name_argument("environment", "environments")
@versioned
@click.option(
    "--format",
    type=click.Choice(("dockerfile", "requirements", "conda"), case_sensitive=False),
    default=None,
    help="File format.  [default: dockerfile]",
)
@to_file
@click.option(
    "--image",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE.tar|FOLDER",
    help="Write an OCI image instead, which runs outside torchyard.",
)
@click.option(
    "--push",
    default="",
    metavar="REGISTRY/NAME[:TAG]",
    help="Push the image to a registry, by skopeo and its login.",
)
@click.option(
    "--base",
    default="",
    metavar="IMAGE",
    help="Put the environment over an image that podman or docker has or pulls. "
    "Default: the files of the server's machine that its programs need.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing image.")
@click.option("--plain-http", is_flag=True, help="Allow a registry without TLS.")
@common
def export(
    session: Session,
    name: str,
    version: str,
    label: str,
    format: str | None,
    file: Path | None,
    **image: Any,
) -> None:
    """Export an environment as a Dockerfile, requirements.txt, conda.yml or OCI image.

    Example: yard environment export -n vision --image vision.tar
    """
    options = _ImageOptions(**image)
    reference = reference_of(name, version, label)
    if options.is_wanted:
        if format is not None or file is not None:
            chosen_option = "--format" if format is not None else "--file"
            raise InvalidInput(
                f"`{chosen_option}` does not go with an image",
                "export the file and the image one by one",
            )
        _export_image(session, reference, options)
        return
    without = [key for key, value in vars(options).items() if value]
    if without:
        raise InvalidInput(
            f"`--{without[0].replace('_', '-')}` is for an image",
            "say `--image FILE.tar` or `--push REGISTRY/NAME:TAG` as well",
        )
    _export_file(session, reference, format or "dockerfile", file)


def _export_file(session: Session, reference: str, format: str, file: Path | None) -> None:
    exported = session.client().environments.export(reference, format)
    if exported.source != "lock":
        warn(
            f"`{exported.name}` was never built here: these are the requested packages; "
            f"`yard environment build {reference}` locks their versions"
        )
    if file is None:
        tables.one(session.form, exported.raw, lambda: exported.text.rstrip("\n"))
        return
    file.write_text(exported.text, encoding="utf-8")
    tables.done(session.form, {**exported.raw, "path": str(file)}, f"Wrote `{file}`.")


def _export_image(session: Session, reference: str, options: _ImageOptions) -> None:
    steps = _Printed()
    try:
        exported = session.client().environments.export_image(
            reference,
            options.image,
            push=options.push,
            plain_http=options.plain_http,
            base=options.base,
            overwrite=options.overwrite,
            log=lambda text: click.echo(text, nl=False, err=True),
            steps=steps,
        )
    finally:
        steps.close()
    size = size_text(exported.size_bytes)
    words = []
    if exported.path is not None:
        words.append(f"Wrote `{exported.path}`: {exported.name}, {size}, {exported.digest}.")
    if exported.pushed:
        words.append(f"Pushed `{exported.pushed}`: {size}, {exported.digest}.")
    tables.done(session.form, exported.raw, "\n".join(words))


@click.command("install", cls=Verb)
@click.argument("name", metavar="NAME", shell_complete=names_of("environments"))
@click.argument("folder", metavar="PREFIX", type=click.Path(path_type=Path), required=False)
@click.option("--prefix", type=click.Path(path_type=Path), help="The same as the argument PREFIX.")
@versioned
@common
def install(
    session: Session,
    name: str,
    folder: Path | None,
    prefix: Path | None,
    version: str,
    label: str,
) -> None:
    """Install an environment into the folder PREFIX of this machine, to run without torchyard.

    Example: yard environment install acpt-pytorch-2.13-cpu /opt/acpt
    """
    if folder is not None and prefix is not None:
        raise click.UsageError(f"two folders are given: `{folder}` and `{prefix}`")
    prefix = folder or prefix
    if prefix is None:
        raise click.UsageError("no folder is given: `yard environment install NAME PREFIX`")
    steps = _Printed()
    try:
        installed = session.client().environments.install(
            reference_of(name, version, label),
            prefix,
            log=lambda text: click.echo(text, nl=False, err=True),
            steps=steps,
        )
    finally:
        steps.close()
    count = len(installed.distributions)
    tables.done(
        session.form,
        installed.to_json(),
        f"Installed {installed.name}:{installed.version} into `{installed.prefix}`: "
        f"Python {installed.python}, {count} {plural('package', count)}, "
        f"{size_text(installed.size_bytes)}.\n"
        f"Run `{installed.prefix}/bin/python`, or `source {installed.prefix}/bin/activate`.",
    )


class _Printed(Steps):
    """Each step in a line, with a bar while it lasts."""

    def __init__(self) -> None:
        self._bar: Progress | None = None

    def note(self, text: str) -> None:
        if self._bar is not None:
            self._bar.close()
        warn(text)

    def begin(self, title: str, size_bytes: int) -> None:
        self.close()
        if sys.stderr.isatty():
            self._bar = Progress(title)
            self._bar.total(size_bytes)

    def add(self, size_bytes: int) -> None:
        if self._bar is not None:
            self._bar.add(size_bytes)

    def end(self, text: str) -> None:
        self.close()
        click.echo(text, err=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
