"""Which server and which workspace a client means, and a connection to it.

Owns: the defaults of a client, those that the user configured, the hints of what to do without a
token or a server.
Leaves: settings to base/settings.py, HTTP to base/http.py, the embedded server to embedded.py.
Always: the workspace is the first of the one given, TORCHYARD_WORKSPACE, the nearest
`config.json`, the one that `yard configure` named, `default`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from torchyard.base import files
from torchyard.base.certificates import authority_file
from torchyard.base.errors import InvalidInput, NotAuthenticated, Unreachable
from torchyard.base.home import handed_sockets
from torchyard.base.http import Transport
from torchyard.base.settings import DEFAULT_WORKSPACE, Settings

CONFIG_FILES = (".azureml/config.json", "aml_config/config.json", "config.json")
_DEFAULTS_FILE = "defaults.json"


def default_workspace(settings: Settings, folder: Path) -> str:
    """TORCHYARD_WORKSPACE, else what the nearest `config.json` from `folder` upwards names, else
    what `yard configure` did.
    """
    workspace = settings.workspace or _configured(folder)
    return workspace or configured_defaults(settings.home).get("workspace") or DEFAULT_WORKSPACE


def configured_defaults(home: Path) -> dict[str, str]:
    """What `yard configure --defaults` has set: some of `workspace`, `group`, `location`.

    Raises:
        InvalidInput: the file is something else.
    """
    file = home / _DEFAULTS_FILE
    try:
        values = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        values = None
    if not isinstance(values, dict) or not all(isinstance(each, str) for each in values.values()):
        raise InvalidInput(
            f"`{file}` is not what `yard configure` writes", "remove it and configure again"
        )
    return values


def configure_defaults(home: Path, values: Mapping[str, str]) -> None:
    """Replace them all, whole or not at all."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with files.write_atomically(home / _DEFAULTS_FILE) as writing:
        writing.write((json.dumps(dict(values), indent=2) + "\n").encode())


def connect(settings: Settings, start: bool, on_start: Callable[[], None] | None) -> Transport:
    """A connection to the server that the settings mean.

    Args:
        start: start this machine's server where it is meant and none runs.
        on_start: called before it is started.

    Raises:
        InvalidInput: the URL is not a server's address.
        NotAuthenticated: there is a URL and no token.
        Unreachable: no server of this machine runs, or could be started.
    """
    if settings.url:
        if not settings.url.startswith(("http://", "https://")):
            hint = "write `https://host:8766`"
            if settings.url_from == "yard login":
                hint = (
                    "log in with `yard login https://host:8766`, or go back to this machine's own "
                    "server with `yard logout`"
                )
            raise InvalidInput(f"`{settings.url}` is not a server's address", hint)
        if not settings.token:
            raise NotAuthenticated(
                f"no token for the server `{settings.url}`", _log_in_hint(settings)
            )
        return Transport(settings.url, settings.token, ca_cert=settings.ca_cert)
    from torchyard.client import embedded

    running = embedded.ensure(settings, on_start) if start else embedded.answering(settings)
    if running is None:
        raise Unreachable(
            "no torchyard server runs on this machine, and `start=False` starts none",
            "start it with `yard server start`, leave out `start=False`, or give a `url`",
        )

    def another(url: str) -> str:
        # A server that is alone is waited for where it was.
        if not settings.servers_folder.is_dir():
            return ""
        server = embedded.answering(settings, but=url)
        return "" if server is None else server.url

    # The router of online endpoints may have this home's own certificate.
    authority = authority_file(settings.home)
    ca_cert = str(authority) if authority.exists() else ""
    return Transport(
        running.url,
        embedded.token(settings),
        ca_cert=ca_cert,
        elsewhere=another,
        files_socket=str(handed_sockets.of_files(settings.home, running.pid)),
    )


def _configured(folder: Path) -> str:
    for parent in (folder, *folder.parents):
        for name in CONFIG_FILES:
            try:
                body = json.loads((parent / name).read_bytes())
            except (OSError, ValueError):
                continue
            workspace = body.get("workspace_name") if isinstance(body, dict) else None
            if isinstance(workspace, str) and workspace:
                return workspace
    return ""


def _log_in_hint(settings: Settings) -> str:
    hint = f"log in with `yard login {settings.url}`"
    if settings.url_from == "argument":
        return f"{hint}, or give `token`"
    if settings.url_from == "TORCHYARD_URL":
        return f"{hint}, set TORCHYARD_TOKEN, or unset TORCHYARD_URL to use this machine's server"
    if settings.url_from == "yard login":
        return f"{hint}, or go back to this machine's own server with `yard logout`"
    return f"{hint}; its owner has a token for you. A server of your own: set TORCHYARD_HOME"
