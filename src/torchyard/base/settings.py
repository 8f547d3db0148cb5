"""Settings, read once at the two ends.

Owns: which environment variables torchyard reads and what their absence means; which server is
meant: TORCHYARD_URL's, else the one logged in to, else the machine's shared one, else the user's
own, embedded one.
Leaves: settings of a workspace to workspaces/.
Always: the commands and the server get their settings from here; programs of their own (workers,
resolvers) read `os.environ` themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchyard.base import logins
from torchyard.base.errors import InvalidInput

DEFAULT_WORKSPACE = "default"
# The server takes these out of its environment as it starts; see home/process_secrets.py.
SECRETS = ("TORCHYARD_DATABASE", "PGPASSWORD", "TORCHYARD_SECRETS_KEY")
# The names of files among the credentials that systemd hands to a service.
_CREDENTIAL, _KEY_CREDENTIAL = "database", "secrets-key"


@dataclass(frozen=True)
class Settings:
    """`url` and `token` are empty when the embedded server on this machine is meant.

    `url_from` says who named the URL: `TORCHYARD_URL`, `yard login` or the machine's file.
    `ca_cert` is a PEM file beside the system's certificates. `trusted_proxies` are addresses and
    networks whose `X-Forwarded-` headers the server believes. `database` is empty for the one that
    the home folder had last; it may hold a password, as may what `database_file` holds.
    `database_password` is for a URL without one. `node_folder` is what jobs reach, apart from the
    home, where a runner starts them as other users: the program whose socket is `runner`.
    `jobs_as_server_user` is set by an owner who accepts that jobs run as the server's own user.
    `messages` is the file about mail servers and webhooks; see jobs/messages/settings.py.
    `backups` is the file about the server's own backups; see servers/backup_settings.py.
    `secrets_key` is the key of the secrets in the records, or `secrets_key_file` holds it; see
    base/home/secrets_keys.py.
    `wheels` is the folder for wheels of environments; see environments/build/wheel_folder.py.
    `datastore_folders` are those that the server itself reads for datastores of `type: local`
    where a runner starts jobs as other users.
    """

    home: Path
    url: str = ""
    token: str = ""
    workspace: str = ""
    snapshot_max_files: int = 2000
    snapshot_max_mb: int = 300
    database: str = field(default="", repr=False)
    database_file: Path | None = None
    database_password: str = field(default="", repr=False)
    url_from: str = ""
    ca_cert: str = ""
    node_folder: Path | None = None
    runner: Path | None = None
    jobs_as_server_user: bool = False
    trusted_proxies: tuple[str, ...] = ()
    messages: Path | None = None
    backups: Path | None = None
    secrets_key: str = field(default="", repr=False)
    secrets_key_file: Path | None = None
    wheels: Path | None = None
    datastore_folders: tuple[Path, ...] = ()

    @property
    def token_file(self) -> Path:
        """The token of the person who owns the embedded server; readable by that person only."""
        return self.home / "token"

    @property
    def server_file(self) -> Path:
        """What the running embedded server says of itself: url, pid, start_time, version."""
        return self.home / "server.json"

    @property
    def servers_folder(self) -> Path:
        """One file of the same kind for each server, when several share the home."""
        return self.home / "servers"

    @property
    def tls_port(self) -> int:
        """Where Azure's clients reach this home's server, now or when it ran last; 0 if nowhere."""
        try:
            return int((self.home / "tls-port").read_text())
        except (OSError, ValueError):
            return 0

    @property
    def server_log(self) -> Path:
        return self.home / "server.log"


def read(environ: Mapping[str, str] | None = None) -> Settings:
    """Read TORCHYARD_HOME, _URL, _TOKEN, _CA_CERT, _SITE, _WORKSPACE, _DATABASE, _DATABASE_FILE,
    _NODE_FOLDER, _RUNNER, _JOBS_AS_SERVER_USER, _TRUSTED_PROXIES, _MESSAGES, _BACKUPS,
    _SECRETS_KEY, _SECRETS_KEY_FILE, _WHEELS, _DATASTORE_FOLDERS and _SNAPSHOT_MAX_FILES, _MAX_MB,
    and what `yard login` has written.

    Raises:
        InvalidInput: a limit is not an integer, or a file is malformed.
    """
    values = os.environ if environ is None else environ
    home = Path(values.get("TORCHYARD_HOME") or "~/.torchyard").expanduser().absolute()
    server, url_from = _server_meant(values, home)
    return Settings(
        home=home,
        url=server.url,
        token=server.token,
        workspace=values.get("TORCHYARD_WORKSPACE", ""),
        snapshot_max_files=_number(values, "TORCHYARD_SNAPSHOT_MAX_FILES", 2000),
        snapshot_max_mb=_number(values, "TORCHYARD_SNAPSHOT_MAX_MB", 300),
        database=values.get("TORCHYARD_DATABASE", ""),
        database_file=_file(values, "TORCHYARD_DATABASE_FILE", _CREDENTIAL),
        database_password=values.get("PGPASSWORD", ""),
        url_from=url_from,
        ca_cert=server.ca_cert,
        node_folder=_folder(values, "TORCHYARD_NODE_FOLDER"),
        runner=_folder(values, "TORCHYARD_RUNNER"),
        jobs_as_server_user=_yes(values, "TORCHYARD_JOBS_AS_SERVER_USER"),
        trusted_proxies=tuple(
            values.get("TORCHYARD_TRUSTED_PROXIES", "").replace(",", " ").split()
        ),
        messages=_folder(values, "TORCHYARD_MESSAGES"),
        backups=_folder(values, "TORCHYARD_BACKUPS"),
        secrets_key=values.get("TORCHYARD_SECRETS_KEY", ""),
        secrets_key_file=_file(values, "TORCHYARD_SECRETS_KEY_FILE", _KEY_CREDENTIAL),
        wheels=_folder(values, "TORCHYARD_WHEELS"),
        datastore_folders=_folders(values, "TORCHYARD_DATASTORE_FOLDERS"),
    )


def with_server(settings: Settings, url: str, token: str) -> Settings:
    """The settings for the server at `url`, or as they are; a `token` counts before every other.

    A token that belongs to another server is not sent to this one: without `token` it is that of
    `yard login URL`.
    """
    url = url.rstrip("/")
    if url and url != settings.url:
        login = logins.read(settings.home).servers.get(url, logins.Login(url))
        ca_cert = login.ca_cert or settings.ca_cert
        # TORCHYARD_TOKEN without a server of its own is meant for the one that is named here.
        variable_token = "" if settings.url else settings.token
        settings = replace(settings, url=url, token=variable_token or login.token, ca_cert=ca_cert)
        settings = replace(settings, url_from="argument")
    return replace(settings, token=token) if token else settings


def _server_meant(values: Mapping[str, str], home: Path) -> tuple[logins.Login, str]:
    url, token = values.get("TORCHYARD_URL", "").rstrip("/"), values.get("TORCHYARD_TOKEN", "")
    url_from = "TORCHYARD_URL" if url else ""
    saved_logins = logins.read(home)
    if not url and saved_logins.current:
        url, url_from = saved_logins.current, "yard login"
    login = saved_logins.servers.get(url, logins.Login(url))
    # A user who names a home means the server in it.
    if not url and not values.get("TORCHYARD_HOME"):
        site_file = Path(values.get("TORCHYARD_SITE") or logins.SITE_FILE)
        site = logins.site(site_file)
        if site is not None:
            login, url_from = saved_logins.servers.get(site.url, site), str(site_file)
    ca_cert = values.get("TORCHYARD_CA_CERT") or login.ca_cert
    return logins.Login(login.url, token or login.token, ca_cert), url_from


def for_jobs(environ: Mapping[str, str]) -> dict[str, str]:
    """What builds and jobs may inherit of the server's environment: not its database's password."""
    return {name: value for name, value in environ.items() if name not in SECRETS}


def with_secrets(database: str, secrets_key: str) -> dict[str, str]:
    """The environment of a program of ours that does something for a server, which has taken both
    out of its own.
    """
    key = {"TORCHYARD_SECRETS_KEY": secrets_key} if secrets_key else {}
    return {**os.environ, "TORCHYARD_DATABASE": database, **key}


def without_colour(environ: Mapping[str, str] | None = None) -> bool:
    """Whether NO_COLOR is set; it then holds for terminals too. Source: https://no-color.org"""
    values = os.environ if environ is None else environ
    return bool(values.get("NO_COLOR"))


def terminal_type(environ: Mapping[str, str] | None = None) -> str:
    """TERM; empty where nothing says what the terminal can do."""
    values = os.environ if environ is None else environ
    return values.get("TERM", "")


def is_set(name: str, environ: Mapping[str, str] | None = None) -> bool:
    """Whether a variable of ours has a value, for a command that is about to be overruled by it."""
    values = os.environ if environ is None else environ
    return bool(values.get(name))


def _folders(values: Mapping[str, str], name: str) -> tuple[Path, ...]:
    """As PATH is written."""
    parts = values.get(name, "").split(os.pathsep)
    return tuple(Path(part).expanduser().absolute() for part in parts if part)


def _folder(values: Mapping[str, str], name: str) -> Path | None:
    return Path(values[name]).expanduser().absolute() if values.get(name) else None


def _file(values: Mapping[str, str], name: str, credential: str) -> Path | None:
    """The file named, else the one that systemd's LoadCredential= gave the service."""
    folder = values.get("CREDENTIALS_DIRECTORY")
    if values.get(name) or not folder:
        return _folder(values, name)
    file = Path(folder, credential)
    return file if file.exists() else None


def _yes(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name, "").lower()
    if text not in ("", "0", "1", "false", "true", "no", "yes"):
        raise InvalidInput(f"`{name}` is `{text}`", "set it to 1, or unset it")
    return text in ("1", "true", "yes")


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name) or str(default)
    if not text.isdecimal():
        raise InvalidInput(f"`{name}` is `{text}`", "set it to a whole number, or unset it")
    return int(text)
