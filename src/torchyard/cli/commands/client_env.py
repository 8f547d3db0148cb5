"""`yard client-env`: the variables that bring Azure ML's own clients to this server.

Owns: the verb, each shell's way to write a variable, running a command with them.
Leaves: which variables to the server, trusted certificates to base/trust.py.
Always: what is printed to stdout is what a shell reads, nothing else; a command that is run takes
this process's place, so its exit code and signals are its own.
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
from torchyard.cli.parsing.group import Verb, say
from torchyard.cli.parsing.options import Session, common, warn

SHELLS = ("bash", "fish", "powershell", "dotenv", "json")
_PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# With one of these azure-identity asks somebody else for a token before it asks us.
_IN_THE_WAY = ("AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_SERVER_THUMBPRINT")
_NOT_FOUND, _NOT_RUN = 127, 126


@click.command("client-env", cls=Verb)
@click.option(
    "--shell",
    type=click.Choice(SHELLS),
    default=None,
    help="Whose syntax; bash is zsh's and sh's, too. Default: as $SHELL says.",
)
@click.option("--run", is_flag=True, help="Run the command that follows `--` with the variables.")
@click.option(
    "--mlflow", is_flag=True, help="MLFLOW_TRACKING_URI and its token, too, for plain mlflow."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@common
def client_env(
    session: Session, shell: str | None, run: bool, mlflow: bool, command: tuple[str, ...]
) -> int:
    """Print the variables with which Azure ML's own clients work on this server, unchanged:
    azure-ai-ml, azureml-mlflow, azureml-core. They hold your token: who has them is you.

    \b
    Example: eval "$(yard client-env)"
             yard client-env --run -- python submit.py
             yard client-env --shell fish | source
             yard client-env --shell dotenv > .env
    """
    if command and not run:
        raise click.UsageError("A command is given without '--run'.")
    if run and not command:
        raise click.UsageError("The command is missing: write '--run -- python submit.py'.")
    if run and shell:
        raise click.UsageError("'--run' prints nothing: leave '--shell' out.")
    for name in _IN_THE_WAY:
        if os.environ.get(name):
            warn(f"{name} is set: azure-identity asks another service for a token first; unset it")
    found = _variables(session, mlflow)
    if run:
        return _become(command, {**os.environ, **found})
    kind = shell or ("json" if session.form.kind == "json" else _shell_of(os.environ))
    click.echo(_WRITTEN[kind](found), nl=False)
    return 0


def _variables(session: Session, mlflow: bool) -> dict[str, str]:
    client = session.client()
    told: dict[str, Any] = client.transport.post("/v1/client-env")
    url, token = str(told["url"]), client.transport.token
    found: dict[str, str] = {
        **told["variables"],
        "IDENTITY_HEADER": token,
        "MSI_SECRET": token,
    }
    authority = told["ca_cert"] or _login_authority(session)
    if authority:
        bundle = trust.bundle(session.settings.home, url, authority, os.environ)
        found["REQUESTS_CA_BUNDLE"] = found["SSL_CERT_FILE"] = str(bundle)
    found["AZURE_CONFIG_DIR"] = str(_config_folder(session.settings.home, url))
    found |= _without_proxy(url, os.environ)
    if mlflow:
        client.workspaces.get(client.workspace)
        found["MLFLOW_TRACKING_URI"] = f"{url}/mlflow/{client.workspace}"
        found["MLFLOW_TRACKING_TOKEN"] = token
    return dict(sorted(found.items()))


def _config_folder(home: Path, url: str) -> Path:
    """Where SDK v1 and `az` write down which cloud they are in: `~/.azure` is for Azure itself, and
    what they wrote for one server is wrong for the next.
    """
    folder = home / trust.FOLDER / f"{trust.file_name(url)}.azure"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"`{folder}` can't be made ({error.strerror})",
            "set TORCHYARD_HOME to a folder of your own",
        ) from error
    return folder


def _login_authority(session: Session) -> str:
    """What the user said at login, or by TORCHYARD_CA_CERT, that signs the server's certificate."""
    file = session.settings.ca_cert
    if not file:
        return ""
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"`{file}` can't be read as PEM", "see TORCHYARD_CA_CERT") from error


def _without_proxy(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """No proxy reaches this machine's loopback."""
    host = urlsplit(url).hostname or ""
    if host not in _LOOPBACK or not any(environ.get(name) for name in _PROXIES):
        return {}
    named = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if host in re.split(r"[\s,]+", named) or named.strip() == "*":
        return {}
    wanted = f"{named},{host}" if named else host
    return {"no_proxy": wanted, "NO_PROXY": wanted}


def _become(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Does not return when the command can be started."""
    try:
        os.execvpe(command[0], list(command), dict(environ))
    except FileNotFoundError:
        say(f"there is no command `{command[0]}`", "see its spelling, and PATH")
        return _NOT_FOUND
    except OSError as error:
        say(f"`{command[0]}` can't be run ({error.strerror})", "see its permissions")
        return _NOT_RUN


def _shell_of(environ: Mapping[str, str]) -> str:
    name = Path(environ.get("SHELL", "")).name
    if name == "fish":
        return "fish"
    return "powershell" if name == "pwsh" or os.name == "nt" else "bash"


def _bash(variables: Mapping[str, str]) -> str:
    lines = "".join(f"export {name}={shlex.quote(text)}\n" for name, text in variables.items())
    return f'{lines}# Have your shell read this: eval "$(yard client-env)"\n'


def _fish(variables: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = "".join(f"set -gx {name} {quoted(text)}\n" for name, text in variables.items())
    return f"{lines}# Have your shell read this: yard client-env --shell fish | source\n"


def _powershell(variables: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        return "'" + re.sub("(['\u2018\u2019\u201a\u201b])", r"\1\1", text) + "'"

    lines = "".join(f"$env:{name} = {quoted(text)}\n" for name, text in variables.items())
    read = "yard client-env --shell powershell | Out-String | Invoke-Expression"
    return f"{lines}# Have your shell read this: {read}\n"


def _dotenv(variables: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        if "'" not in text:
            return f"'{text}'"
        return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'

    lines = "".join(f"{name}={quoted(text)}\n" for name, text in variables.items())
    return f"# It holds your token: keep it out of git.\n{lines}"


def _json(variables: Mapping[str, str]) -> str:
    return json.dumps(variables, indent=2) + "\n"


_WRITTEN: dict[str, Callable[[Mapping[str, str]], str]] = {
    "bash": _bash,
    "fish": _fish,
    "powershell": _powershell,
    "dotenv": _dotenv,
    "json": _json,
}
