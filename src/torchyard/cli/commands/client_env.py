"""`yard client-env`: the variables that point Azure ML's own clients at this server.

Owns: the verb, each shell's syntax for variables, running a command with them.
Leaves: the choice of variables to the server, trusted certificates to base/trust.py.
Always: stdout has only what a shell reads; a command that is run replaces this process, so its exit
code and signals are its own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from torchyard.base import trust
from torchyard.base.errors import InvalidInput
from torchyard.cli.az_lines import AZ_FUNCTION
from torchyard.cli.parsing.group import Verb, say
from torchyard.cli.parsing.options import Session, common, warn

SHELLS = ("bash", "fish", "powershell", "dotenv", "json")
_PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# If one of these is set, azure-identity asks another service for a token before ours.
_IN_THE_WAY = ("AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_SERVER_THUMBPRINT")
_NOT_FOUND, _NOT_RUN = 127, 126


@click.command("client-env", cls=Verb)
@click.option(
    "--shell",
    type=click.Choice(SHELLS),
    default=None,
    help="Shell syntax; bash also suits zsh and sh. Default: from $SHELL.",
)
@click.option("--run", is_flag=True, help="Run the command after `--` with the variables.")
@click.option(
    "--mlflow", is_flag=True, help="Include MLFLOW_TRACKING_URI and its token, for plain MLflow."
)
@click.option("--az", is_flag=True, help="Include a shell function `az` that runs `yard az`.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@common
def client_env(
    session: Session, shell: str | None, run: bool, mlflow: bool, az: bool, command: tuple[str, ...]
) -> int:
    """Print the variables that let Azure ML's own clients use this server unchanged.

    These are azure-ai-ml, azureml-mlflow and azureml-core. The variables contain your token: keep
    them secret.

    \b
    Example: eval "$(yard client-env)"
             yard client-env --run -- python submit.py
             yard client-env --shell fish | source
             yard client-env --shell dotenv > .env
    """
    if command and not run:
        raise click.UsageError("A command needs '--run' before it.")
    if run and not command:
        raise click.UsageError("The command is missing: use '--run -- python submit.py'.")
    if run and az:
        raise click.UsageError("'--run' prints no function: omit '--az'.")
    if run and shell:
        raise click.UsageError("'--run' prints no variables: omit '--shell'.")
    for name in _IN_THE_WAY:
        if os.environ.get(name):
            warn(f"{name} is set: azure-identity asks another service for a token first; unset it")
    variables = _variables(session, mlflow)
    if run:
        return _become(command, {**os.environ, **variables})
    kind = shell or ("json" if session.form.kind == "json" else _shell_of(os.environ))
    if az and kind != "bash":
        raise click.UsageError("'--az' is a function for bash, zsh and sh: use '--shell bash'.")
    click.echo(_WRITTEN[kind](variables) + (AZ_FUNCTION if az else ""), nl=False)
    return 0


def _variables(session: Session, mlflow: bool) -> dict[str, str]:
    client = session.client()
    response: dict[str, Any] = client.transport.post("/v1/client-env")
    url, token = str(response["url"]), client.transport.token
    variables: dict[str, str] = {
        **response["variables"],
        "IDENTITY_HEADER": token,
        "MSI_SECRET": token,
    }
    authority = response["ca_cert"] or _login_authority(session)
    if authority:
        bundle = trust.bundle(session.settings.home, url, authority, os.environ)
        variables["REQUESTS_CA_BUNDLE"] = variables["SSL_CERT_FILE"] = str(bundle)
    variables["AZURE_CONFIG_DIR"] = str(_config_folder(session.settings.home, url))
    variables |= _without_proxy(url, os.environ)
    if mlflow:
        client.workspaces.get(client.workspace)
        variables["MLFLOW_TRACKING_URI"] = f"{url}/mlflow/{client.workspace}"
        variables["MLFLOW_TRACKING_TOKEN"] = token
    return dict(sorted(variables.items()))


def _config_folder(home: Path, url: str) -> Path:
    """The folder in which SDK v1 and `az` cache the details of their cloud.

    `~/.azure` is for Azure itself, and the cache for one server is wrong for another.
    """
    folder = home / trust.FOLDER / f"{trust.file_name(url)}.azure"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"`{folder}` can't be created ({error.strerror})",
            "set TORCHYARD_HOME to a folder you can write to",
        ) from error
    return folder


def _login_authority(session: Session) -> str:
    """The server's CA certificate, from the login or TORCHYARD_CA_CERT."""
    file = session.settings.ca_cert
    if not file:
        return ""
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"`{file}` can't be read as PEM", "check TORCHYARD_CA_CERT") from error


def _without_proxy(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Exclude this machine's loopback from proxies, which can't reach it."""
    host = urlsplit(url).hostname or ""
    if host not in _LOOPBACK or not any(environ.get(name) for name in _PROXIES):
        return {}
    hosts = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if host in re.split(r"[\s,]+", hosts) or hosts.strip() == "*":
        return {}
    exempt_hosts = f"{hosts},{host}" if hosts else host
    return {"no_proxy": exempt_hosts, "NO_PROXY": exempt_hosts}


def _become(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Replace this process; returns only if the command can't be started."""
    try:
        os.execvpe(command[0], list(command), dict(environ))
    except FileNotFoundError:
        say(f"the command `{command[0]}` was not found", "check its spelling and PATH")
        return _NOT_FOUND
    except OSError as error:
        say(f"`{command[0]}` can't be run ({error.strerror})", "check its permissions")
        return _NOT_RUN


def _shell_of(environ: Mapping[str, str]) -> str:
    name = Path(environ.get("SHELL", "")).name
    if name == "fish":
        return "fish"
    return "powershell" if name == "pwsh" or os.name == "nt" else "bash"


def _bash(variables: Mapping[str, str]) -> str:
    lines = "".join(f"export {name}={shlex.quote(text)}\n" for name, text in variables.items())
    return f'{lines}# Load this into your shell: eval "$(yard client-env)"\n'


def _fish(variables: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = "".join(f"set -gx {name} {quoted(text)}\n" for name, text in variables.items())
    return f"{lines}# Load this into your shell: yard client-env --shell fish | source\n"


def _powershell(variables: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        return "'" + re.sub("(['\u2018\u2019\u201a\u201b])", r"\1\1", text) + "'"

    lines = "".join(f"$env:{name} = {quoted(text)}\n" for name, text in variables.items())
    read = "yard client-env --shell powershell | Out-String | Invoke-Expression"
    return f"{lines}# Load this into your shell: {read}\n"


def _dotenv(variables: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        if "'" not in text:
            return f"'{text}'"
        return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'

    lines = "".join(f"{name}={quoted(text)}\n" for name, text in variables.items())
    return f"# This file contains your token: keep it out of git.\n{lines}"


def _json(variables: Mapping[str, str]) -> str:
    return json.dumps(variables, indent=2) + "\n"


_WRITTEN: dict[str, Callable[[Mapping[str, str]], str]] = {
    "bash": _bash,
    "fish": _fish,
    "powershell": _powershell,
    "dotenv": _dotenv,
    "json": _json,
}
