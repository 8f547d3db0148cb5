"""What `yard-server` is asked for: its command line, and the settings behind it.

Owns: the options, their defaults and checks.
Leaves: what is done with them to server.py.
Always: a secret that came by the environment is taken out of it before anything is started.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from torchyard.app import listeners
from torchyard.app.request_guard import LOOPBACK_NAMES
from torchyard.base import addresses, settings
from torchyard.base.addresses import Network
from torchyard.base.errors import InvalidInput
from torchyard.base.home import home_database, process_secrets, secrets_keys
from torchyard.base.home.home_database import Choice
from torchyard.base.home.secrets_keys import NOT_GIVEN, Given
from torchyard.environments.build import wheel_folder


@dataclass(frozen=True)
class Options:
    """What a server is asked for on its command line.

    `tls`: `host` and `port` are the listener's that has it; workers and commands of this machine go
    on using a plain one on loopback. None for the server's own, when it is wanted. `shared`: other
    servers may serve the home, too. `storage_domain`: of which storage accounts are host names; see
    azureml/entry_routes.py. `ready_fd`: where the URL is written once the server listens.
    `node_folder`: see base/home/node_folder.py; None for one in the home. `runner`,
    `jobs_as_server_user`: see executors/job_users.py. `proxies`: whose `X-Forwarded-For` and
    `X-Forwarded-Proto` are believed. `audit_sink`: where copies of the audit go; see
    workspaces/audit_sink.py. `inherited`: listens already, at `host`; see listeners.inherited.
    `services_url`, `services_port`: see interactive/running_services.py. `scoring_port`: of the
    router of online endpoints; 0 for the one after the server's, or any that is free.
    `oidc`: settings of the sign-in; see sign_in/settings.py. `messages`: those of webhooks and
    e-mail; see jobs/messages/settings.py. `wheels`: where wheels of environments are kept; see
    environments/build/wheel_folder.py. `listen`: at all addresses of this
    machine, with the server's own certificate; None for as a server that commands start did last.
    `backups`: those that the server makes by itself; see servers/backup_settings.py.
    `secrets_key`: of the secrets in the records; see base/home/secrets_keys.py.
    """

    home: Path
    host: str = LOOPBACK_NAMES[0]
    port: int | None = None
    tls: listeners.Tls | None = None
    database: Choice = field(default_factory=Choice)
    shared: bool = False
    storage_domain: str = ""
    audit_sink: str = ""
    inherited: socket.socket | None = None
    oidc: Path | None = None
    services_url: str = ""
    services_port: int = 0
    scoring_port: int = 0
    ready_fd: int | None = None
    node_folder: Path | None = None
    runner: Path | None = None
    jobs_as_server_user: bool = False
    proxies: tuple[Network, ...] = ()
    listen: bool | None = None
    messages: Path | None = None
    wheels: Path | None = None
    datastore_folders: tuple[Path, ...] = ()
    backups: Path | None = None
    secrets_key: Given = NOT_GIVEN


class _Parser(argparse.ArgumentParser):
    """Errors in the shape that all of torchyard's have."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}\nhint: see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(2)


def _add_services(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--services-url",
        default="",
        metavar="URL",
        help="where people on other machines reach the services of jobs, with a star for the host "
        "name of each: `https://*.services.example.org`; default: on this machine alone",
    )
    options.add_argument(
        "--services-port", type=int, default=0, help="of that listener; default: any that is free"
    )
    options.add_argument(
        "--scoring-port",
        type=int,
        default=0,
        help="where online endpoints take requests; default: the one after the server's port",
    )


def _add_files(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--oidc",
        type=Path,
        default=None,
        metavar="FILE",
        help="let people sign in with the OpenID Connect provider that this JSON file describes",
    )
    options.add_argument(
        "--messages",
        type=Path,
        default=None,
        metavar="FILE",
        help="send e-mail when jobs end by the mail server that this JSON file names, and webhooks "
        "also to the private networks in it; default: TORCHYARD_MESSAGES",
    )
    options.add_argument(
        "--backups",
        type=Path,
        default=None,
        metavar="FILE",
        help="back the server up every week, or as this JSON file says, and prove each backup; "
        "default: TORCHYARD_BACKUPS, else none",
    )
    options.add_argument(
        "--secrets-key-file",
        type=Path,
        default=None,
        metavar="FILE",
        help="file with the key of the secrets in the database, made at the first start; default: "
        "TORCHYARD_SECRETS_KEY_FILE, systemd's credential `secrets-key`, else one beside the home",
    )
    options.add_argument(
        "--wheels",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="keep the wheels of environments' versions there, and take them first when one is "
        "built again; default: TORCHYARD_WHEELS",
    )


def parser() -> argparse.ArgumentParser:
    """Of `yard-server`."""
    options = _Parser("yard-server", description="Serve a torchyard home folder.")
    options.add_argument("--home", type=Path, default=None, help="default: TORCHYARD_HOME")
    options.add_argument("--host", default="127.0.0.1", help="beyond loopback it needs TLS")
    options.add_argument(
        "--listen",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="listen at all addresses of this machine, with TLS and the server's own certificate, "
        "for nodes on other machines",
    )
    options.add_argument("--tls-cert", type=Path, default=None, help="PEM file, with its chain")
    options.add_argument("--tls-key", type=Path, default=None, help="PEM file, without a password")
    _add_services(options)
    options.add_argument(
        "--insecure", action="store_true", help="listen beyond loopback without TLS"
    )
    options.add_argument(
        "--shared",
        action="store_true",
        help="other servers may serve this home and its PostgreSQL, too, all with this flag",
    )
    options.add_argument("--port", type=int, default=None, help="default: the one used last")
    _add_database_options(options)
    options.add_argument(
        "--storage-domain",
        default="",
        metavar="DOMAIN",
        help="Azure's clients reach storage as ACCOUNT.blob.DOMAIN; needs a wildcard in DNS and in "
        "the certificate",
    )
    _add_runner_options(options)
    options.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS[/NET]",
        help="a reverse proxy whose X-Forwarded-For and X-Forwarded-Proto headers are believed; "
        "repeatable; default: TORCHYARD_TRUSTED_PROXIES, else none",
    )
    _add_files(options)
    options.add_argument(
        "--audit-sink",
        default="",
        metavar="SINK",
        help="send a copy of each audit line to this machine's syslog: syslog:/dev/log",
    )
    options.add_argument("--ready-fd", type=int, default=None, help=argparse.SUPPRESS)
    return options


def _add_database_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database",
        default="",
        metavar="URL",
        help="postgresql://user@host/name; default: TORCHYARD_DATABASE, then the one used last",
    )
    parser.add_argument(
        "--database-file",
        type=Path,
        default=None,
        metavar="FILE",
        help="file with the database's URL and password, which others can't read; default: "
        "TORCHYARD_DATABASE_FILE, or systemd's credential `database`",
    )


def _add_runner_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node-folder",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="where jobs that a runner starts find environments and work; default: "
        "TORCHYARD_NODE_FOLDER, then the home",
    )
    parser.add_argument(
        "--datastore-folder",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="with a runner: a folder that datastores of `type: local` may be in without naming a "
        "Unix account; read and written as the server's user; repeatable; default: "
        "TORCHYARD_DATASTORE_FOLDERS, else none",
    )
    parser.add_argument(
        "--runner",
        type=Path,
        default=None,
        metavar="SOCKET",
        help="the runner's; default: TORCHYARD_RUNNER, then this machine's if people reach the "
        "server from elsewhere",
    )
    parser.add_argument(
        "--jobs-as-server-user",
        action="store_true",
        help="without a runner: everyone who may submit a job may read and change all that the "
        "server can; or TORCHYARD_JOBS_AS_SERVER_USER=1",
    )


def _database(arguments: argparse.Namespace, configured: settings.Settings) -> Choice:
    if arguments.database:
        home_database.refuse_password(arguments.database)
        return Choice(arguments.database, password=configured.database_password)
    if arguments.database_file:
        return Choice(file=arguments.database_file.absolute())
    return Choice(
        configured.database, configured.database_file, password=configured.database_password
    )


def _with_key_file(
    arguments: argparse.Namespace, configured: settings.Settings
) -> settings.Settings:
    if not arguments.secrets_key_file:
        return configured
    return replace(
        configured, secrets_key="", secrets_key_file=arguments.secrets_key_file.absolute()
    )


def _proxies(configured: settings.Settings, networks: list[str]) -> tuple[Network, ...]:
    """
    Raises:
        InvalidInput: a proxy is neither an address nor a network.
    """
    if networks:
        return addresses.parse_networks(networks, "--trusted-proxy")
    return addresses.parse_networks(configured.trusted_proxies, "TORCHYARD_TRUSTED_PROXIES")


def _wheels(arguments: argparse.Namespace, configured: settings.Settings) -> Path | None:
    """
    Raises:
        InvalidInput: it is not a folder that the server can write to.
    """
    folder: Path | None = arguments.wheels.absolute() if arguments.wheels else configured.wheels
    if folder is not None:
        wheel_folder.check(folder)
    return folder


def read(arguments: argparse.Namespace) -> Options:
    """What the command line and the settings say; secrets leave the process's environment.

    Raises:
        InvalidInput: something in them is wrong.
    """
    if arguments.listen and (arguments.tls_cert or arguments.host != LOOPBACK_NAMES[0]):
        raise InvalidInput(
            "`--listen` brings its own certificate and listens at every address",
            "leave out `--host` and `--tls-cert`, or leave out `--listen`",
        )
    taken = process_secrets.take(settings.SECRETS)
    inherited = listeners.inherited(os.environ)
    host = inherited.getsockname()[0] if inherited is not None else arguments.host
    tls = listeners.tls_of(host, arguments.tls_cert, arguments.tls_key, arguments.insecure)
    configured = settings.read({**os.environ, **taken})
    home = arguments.home.absolute() if arguments.home else configured.home
    database = _database(arguments, configured)
    return Options(
        home,
        host,
        arguments.port,
        tls,
        database,
        arguments.shared,
        arguments.storage_domain,
        arguments.audit_sink,
        inherited,
        arguments.oidc,
        arguments.services_url,
        arguments.services_port,
        arguments.scoring_port,
        arguments.ready_fd,
        arguments.node_folder.absolute() if arguments.node_folder else configured.node_folder,
        arguments.runner.absolute() if arguments.runner else configured.runner,
        arguments.jobs_as_server_user or configured.jobs_as_server_user,
        _proxies(configured, arguments.trusted_proxy),
        arguments.listen,
        arguments.messages.absolute() if arguments.messages else configured.messages,
        _wheels(arguments, configured),
        tuple(folder.absolute() for folder in arguments.datastore_folder)
        or configured.datastore_folders,
        arguments.backups.absolute() if arguments.backups else configured.backups,
        secrets_keys.given_by(_with_key_file(arguments, configured)),
    )
