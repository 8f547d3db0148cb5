"""`yard-server`: one process over one home folder, or one of several with `--shared`.

Owns: the home's lock, the port, the owner's token, the order in which things start and stop.
Leaves: the routes to app/application.py, several servers' dealings to servers/, everything else to
the packages.
Always: the port stays the same over restarts, unless another program has taken it; a server that is
killed loses nothing.
"""

from __future__ import annotations

import gc

# What is imported is never garbage. Looking for some takes a fifth of the time meanwhile, and later
# a full collection would look at all of it, with Python's lock held.
gc.disable()

import errno
import getpass
import logging
import os
import shlex
import signal
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn

import torchyard
from torchyard import server_options
from torchyard.app import listeners, server_log
from torchyard.app.application import Parts, build, create_app
from torchyard.app.request_guard import LOOPBACK_NAMES
from torchyard.azureml import job_variables
from torchyard.base import certificates, disk, settings
from torchyard.base.addresses import Network, is_loopback
from torchyard.base.bodies.handover import Handover
from torchyard.base.clock import SystemClock
from torchyard.base.errors import Conflict, DiskFull, InvalidInput, TorchyardError
from torchyard.base.files import write_atomically
from torchyard.base.home import handed_sockets, home_database, home_service, private_home
from torchyard.base.home.home_database import Choice
from torchyard.endpoints.running.router_process import ScoringAt
from torchyard.executors import job_users, server_for_nodes
from torchyard.executors.server_for_nodes import NodeAddresses
from torchyard.interactive.running_services import ServicesAt
from torchyard.jobs.messages import settings as message_settings
from torchyard.jobs.messages.settings import MessageSettings
from torchyard.jobs.records.wakeups import Signals
from torchyard.server_options import Options
from torchyard.servers import backup_settings
from torchyard.servers.backup_settings import BackupSettings
from torchyard.servers.files import ServerFiles
from torchyard.servers.types import Server
from torchyard.shared import home_watch, locks, processes
from torchyard.tunnels.registry import Tunnels
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import people
from torchyard.workspaces.audit_sink import Sink, sink_of

if TYPE_CHECKING:
    from fastapi import FastAPI

    from torchyard.sign_in.routes import SignIn

gc.freeze()
gc.enable()

_log = logging.getLogger(__name__)
_DEFAULT_PORT = 8765
_DEFAULT_TLS_PORT = 8766
_ALL_ADDRESSES = "::"
_LISTEN_FILE = "listen"
_ANY = ("0.0.0.0", "::")
_LAST_PORT = 65535
_START_LIMIT_S = 60.0
_SWITCH_INTERVAL_S = 0.0005


def ensure_token(parts: Parts, token_file: Path) -> None:
    """The owner's token in a file that only the owner reads; a lost or foreign one is replaced."""
    services = parts.services
    if token_file.exists() and workspaces.is_known(
        services.db, services.clock, token_file.read_text().strip()
    ):
        return
    with services.db.write() as connection:
        token = people.home_token(connection, getpass.getuser(), services.clock.now())
    with write_atomically(token_file, mode=0o600) as writing:
        writing.write(token.encode() + b"\n")


def hold_home(home: Path, shared: bool = False) -> IO[bytes]:
    """Lock the home folder, for one server or for several that share it; let go by closing the
    file, or by dying.

    Raises:
        Conflict: another server serves it, or servers of the other kind do.
        InvalidInput: its file system has no locks.
    """
    lock = open(home / "served.lock", "ab")
    try:
        if locks.try_lock(lock, shared):
            return lock
    except OSError as error:
        lock.close()
        raise InvalidInput(
            f"no file can be locked in `{home}` ({error.strerror}), so that two servers could "
            "write there at once",
            "set TORCHYARD_HOME to a folder on a disk of this machine",
        ) from error
    others_share = not shared and locks.try_lock(lock, shared=True)
    lock.close()
    if shared:
        raise Conflict(
            f"a server that does not share it serves `{home}`",
            "stop it with `yard server stop`, and start it with `--shared`, too",
            code="served",
        )
    if others_share:
        raise Conflict(
            f"servers that share it serve `{home}`",
            "start this one with `--shared`, too, or stop them with `yard server stop`",
            code="served",
        )
    raise Conflict(f"another server serves `{home}`", "see it with `yard server status`")


@contextmanager
def _starting_one_at_a_time(home: Path, shared: bool) -> Iterator[None]:
    """What servers of a new home write once, the first of them writes.

    Raises:
        Conflict: another one has been starting for very long.
    """
    if not shared:
        yield
        return
    (home / "locks").mkdir(mode=0o700, exist_ok=True)
    deadline = time.monotonic() + _START_LIMIT_S
    with locks.hold(home / "locks" / "starting", lambda: time.monotonic() > deadline) as is_held:
        if not is_held:
            raise Conflict(
                f"another server of `{home}` has been starting for {_START_LIMIT_S:g} s",
                "see `yard server logs`, and end it if it is stuck",
            )
        yield


def listen(
    home: Path,
    host: str,
    port: int | None,
    port_file: str = "port",
    default: int = _DEFAULT_PORT,
    shared: bool = False,
) -> socket.socket:
    """A listening socket on the port asked for, else the one used last, else a free one.

    Args:
        port_file: the file of the home folder that remembers the port.
        shared: the first of several has it, so it is remembered once.

    Raises:
        Conflict: the port asked for is taken.
        InvalidInput: it can't be opened, as by an ordinary user below 1024.
    """
    remembered = home / port_file
    numbers = [port] if port is not None else [_remembered(remembered) or default, 0]
    problem: OSError | None = None
    for number in numbers:
        listener = _socket_for(host)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_bindable(host, listener), number))
            # Two that bind at once both may; only one of them may listen.
            listener.listen(1024)
        except OSError as error:
            listener.close()
            problem = error
            continue
        last_port = _remembered(remembered)
        if last_port and port is None and not shared and number != last_port:
            chosen = listener.getsockname()[1]
            _log.warning("port %d of `%s` is taken; using %d instead", last_port, host, chosen)
        _remember(remembered, listener, shared)
        return listener
    raise _cannot_listen(host, port, problem)


def _cannot_listen(host: str, port: int | None, problem: OSError | None) -> TorchyardError:
    if isinstance(problem, PermissionError):
        return InvalidInput(
            f"port {port} of `{host}` needs more rights than this user has",
            "choose one from 1024 on with `--port`",
        )
    if problem is None or problem.errno == errno.EADDRINUSE:
        return Conflict(f"port {port} of `{host}` is taken", "choose another with `--port`")
    return InvalidInput(
        f"port {port} of `{host}` can't be opened: {problem.strerror}",
        "choose another with `--port`, and an address of this machine with `--host`",
    )


def _socket_for(host: str) -> socket.socket:
    """For IPv6 and IPv4 where all addresses are meant, for IPv4 alone on machines without IPv6."""
    # asyncio turns Nagle's delay off only for sockets that name their protocol.
    if ":" in host:
        with suppress(OSError):
            listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != _ALL_ADDRESSES)
            return listener
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)


def _bindable(host: str, listener: socket.socket) -> str:
    is_ipv4 = listener.family == socket.AF_INET
    return "0.0.0.0" if is_ipv4 and host == _ALL_ADDRESSES else host


def _remember(file: Path, listener: socket.socket, shared: bool) -> None:
    last_port, port = _remembered(file), listener.getsockname()[1]
    if not (shared and last_port) and last_port != port:
        with write_atomically(file) as writing:
            writing.write(str(port).encode())


def _remembered(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


@dataclass(frozen=True)
class _Listeners:
    """Where requests come in; `own_tls` is set when none was configured. `listens`: other machines
    reach the listener with the server's own certificate.
    """

    host: str
    plain: socket.socket
    secure: tuple[socket.socket, ssl.SSLContext] | None
    configured_tls: listeners.ConfiguredTls | None
    own_tls: listeners.OwnTls | None
    listens: bool = False

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.plain.getsockname()[1]}"

    @property
    def tls(self) -> listeners.ConfiguredTls | listeners.OwnTls:
        tls = self.configured_tls or self.own_tls
        assert tls is not None
        return tls

    @property
    def public_url(self) -> str:
        """Where people on other machines reach the server; empty when they don't."""
        if self.configured_tls is not None and self.secure is not None:
            host = self.configured_tls.way("localhost").host
            return f"https://{host or socket.getfqdn()}:{self.secure[0].getsockname()[1]}"
        if self.listens and self.secure is not None:
            return f"https://{socket.getfqdn()}:{self.secure[0].getsockname()[1]}"
        if is_loopback(self.host):
            return ""
        host = socket.getfqdn() if self.host in _ANY else self.host
        return f"http://{host}:{self.plain.getsockname()[1]}"


def _node_addresses(entrance: _Listeners, options: Options) -> NodeAddresses:
    """Where nodes of other machines reach the server, as this machine's addresses are now."""
    if entrance.secure is None or not (entrance.listens or entrance.configured_tls):
        if is_loopback(entrance.host):
            return NodeAddresses((entrance.url,))
        hosts = server_for_nodes.own_addresses() if options.host in _ANY else [options.host]
        port = entrance.plain.getsockname()[1]
        return NodeAddresses(tuple(_urls("http", hosts, port)))
    port = entrance.secure[0].getsockname()[1]
    if entrance.configured_tls is not None and options.tls is not None:
        name = entrance.configured_tls.way("localhost").host
        if is_loopback(options.host):
            hosts = [options.host]
        else:
            hosts = [name] if name else []
            hosts += server_for_nodes.own_addresses() if options.host in _ANY else [options.host]
        return NodeAddresses(
            tuple(_urls("https", hosts, port)), listeners.certificate_of(options.tls)
        )
    way = entrance.tls.current()
    hosts = server_for_nodes.own_addresses() or [LOOPBACK_NAMES[0]]
    name = socket.getfqdn()
    # A name is found again when the addresses have changed.
    hosts += [name] if "." in name and not name.startswith("localhost") else []
    return NodeAddresses(tuple(_urls("https", hosts, port)), way.authority if way else "")


def _urls(scheme: str, hosts: list[str], port: int) -> list[str]:
    return [server_for_nodes.url_of(scheme, host, port) for host in dict.fromkeys(hosts)]


def _open_to_all(options: Options) -> _Listeners:
    """At every address with the server's own certificate; plain on loopback."""
    home, shared = options.home, options.shared
    bind = partial(
        listen, home, _ALL_ADDRESSES, options.port, "tls-port", _DEFAULT_TLS_PORT, shared
    )
    own_tls = listeners.OwnTls(
        home, "", SystemClock(), bind, lambda: [*server_for_nodes.own_addresses(), socket.getfqdn()]
    )
    secure = own_tls.at_start(is_required=True)
    host = LOOPBACK_NAMES[0]
    plain = listen(home, host, None, shared=shared)
    return _Listeners(host, plain, secure, None, own_tls, listens=True)


def _open(options: Options, context: ssl.SSLContext | None) -> _Listeners:
    """
    Args:
        context: of the TLS that was asked for.
    """
    home, shared = options.home, options.shared
    if options.listen:
        return _open_to_all(options)
    if options.tls is None or context is None:
        bind = partial(listen, home, options.host, None, "tls-port", _DEFAULT_TLS_PORT, shared)
        own_tls = listeners.OwnTls(home, options.host, SystemClock(), bind)
        secure = own_tls.at_start()
        plain = _listener(options, "port", _DEFAULT_PORT)
        return _Listeners(options.host, plain, secure, None, own_tls)
    with_tls = _listener(options, "tls-port", _DEFAULT_TLS_PORT)
    configured = listeners.ConfiguredTls(options.tls, with_tls.getsockname()[1])
    host = LOOPBACK_NAMES[0]
    plain = listen(home, host, None, shared=shared)
    return _Listeners(host, plain, (with_tls, context), configured, None)


def _listener(options: Options, port_file: str, default: int) -> socket.socket:
    """What listens at `host`: inherited, or opened now."""
    if options.inherited is None:
        arguments = (options.home, options.host, options.port, port_file, default)
        return listen(*arguments, options.shared)
    _remember(options.home / port_file, options.inherited, options.shared)
    return options.inherited


def run(options: Options) -> None:
    """Serve until SIGTERM or SIGINT."""
    options = _listening_as_before(options)
    context = listeners.context_of(options.tls) if options.tls is not None else None
    sink, messages = sink_of(options.audit_sink), message_settings.read(options.messages)
    backups = backup_settings.read(options.backups, options.home, options.secrets_key.value)
    home, shared, for_others = options.home, options.shared, _is_for_others(options)
    environ = private_home.restrict_umask(settings.for_jobs(os.environ))
    users = _job_users(options, shared or for_others)
    private_home.ensure(home, mend=options.ready_fd is not None)
    lock = hold_home(home, shared)
    server_log.rotate(settings.Settings(home).server_log)
    if options.ready_fd is None:
        home_service.record(home, _service(options))

    with _starting_one_at_a_time(home, shared):
        entrance = _open(options, context)
        _remember_listening(options)
        parts = build(
            home,
            entrance.url,
            environ,
            database=home_database.resolve(home, options.database),
            shared=shared,
            for_others=for_others,
            node=users.node,
            runner=users.runner,
            private=_private_files(options, messages, backups),
            node_addresses=partial(_node_addresses, entrance, options),
            messages=replace(messages, page_url=entrance.public_url or entrance.url),
            wheel_folder=options.wheels,
            datastore_folders=options.datastore_folders,
            secrets_key=options.secrets_key,
        )
        _remember_database(options)
        ensure_token(parts, settings.Settings(home).token_file)
    app = _app(options, entrance, parts, sink)
    app.state.backup_settings, tls = backups, entrance.tls
    job_variables.publish(parts.services, environ, parts.signer, tls.current, tls.way)
    server = _http_server(options, entrance, app)
    server.signals, server.tunnels = parts.services.signals, parts.services.tunnels
    if entrance.own_tls is not None:
        entrance.own_tls.server = server
    files = ServerFiles(home, users.node)
    if parts.sharing is not None:
        # Not before: until its app runs, nothing must keep it from renewing its lease in time.
        parts.sharing.start()
    else:
        files.name(_single_server(entrance.url))
    _tell_starter(options, entrance.url)
    home_watch.watch(home)
    _log.warning("torchyard %s serves %s at %s", torchyard.__version__, home, entrance.url)
    try:
        _serve(server, entrance.plain, app.state.handover)
    finally:
        if entrance.own_tls is not None:
            entrance.own_tls.close()
        if not shared:
            files.unname()
        lock.close()


def _serve(server: uvicorn.Server, plain: socket.socket, handover: Handover) -> None:
    # uvicorn raises the signal again once it has ended, which would end this process here and now.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.run(sockets=[plain])
    finally:
        handover.close()


def _listening_as_before(options: Options) -> Options:
    """A server that commands start listens as it was told last."""
    file = options.home / _LISTEN_FILE
    if options.ready_fd is not None and options.listen is None:
        return replace(options, listen=file.exists())
    return options


def _remember_listening(options: Options) -> None:
    file = options.home / _LISTEN_FILE
    if options.listen:
        file.touch(mode=0o600)
    elif options.listen is False:
        file.unlink(missing_ok=True)


def _is_for_others(options: Options) -> bool:
    """Whether other people reach the server: by itself, through a proxy, or as who signs in."""
    if options.listen or not is_loopback(options.host):
        return True
    is_embedded = options.ready_fd is not None
    return not is_embedded and (bool(options.proxies) or options.oidc is not None)


def _service(options: Options) -> home_service.HomeService | None:
    """What serves the home, unless commands may start its server."""
    try:
        cgroups = Path("/proc/self/cgroup").read_text()
    except OSError:
        cgroups = ""
    unit = home_service.unit_of_this_process(os.environ, cgroups)
    if not unit and not _is_for_others(options):
        return None
    return home_service.HomeService(unit, options.host)


def _app(options: Options, entrance: _Listeners, parts: Parts, sink: Sink | None) -> FastAPI:
    hosts = (*LOOPBACK_NAMES, entrance.host) if is_loopback(entrance.host) else ()
    app = create_app(
        parts,
        hosts,
        entrance.tls.way,
        options.storage_domain,
        audit_sink=sink,
        public_url=entrance.public_url,
        sign_in=_sign_in(options, entrance.public_url),
        services_at=_services_at(options),
        scoring_at=_scoring_at(options, entrance),
    )
    app.state.handover.listen(handed_sockets.of_files(options.home, os.getpid()))
    return app


def _services_at(options: Options) -> ServicesAt:
    """
    Raises:
        InvalidInput: `--services-url` is not a pattern of addresses.
    """
    if not options.services_url:
        return ServicesAt(port=options.services_port)
    # Behind a proxy that ends TLS, it listens for that one alone.
    tls = None
    if options.tls is not None and options.services_url.startswith("https:"):
        tls = listeners.context_of(options.tls)
    is_open = tls is not None or options.services_url.startswith("http:")
    host = options.host if is_open else LOOPBACK_NAMES[0]
    return ServicesAt(options.services_url, host, options.services_port, tls)


def _scoring_at(options: Options, entrance: _Listeners) -> ScoringAt:
    """Where the router of online endpoints listens: beside the server, with its certificate."""
    port = entrance.plain.getsockname()[1] + 1
    tls = options.tls
    public = ""
    issued = certificates.read_stored(options.home) if entrance.listens else None
    if issued is not None and entrance.secure is not None:
        port = entrance.secure[0].getsockname()[1] + 1
        return ScoringAt(
            _ALL_ADDRESSES,
            options.scoring_port,
            min(port, _LAST_PORT),
            issued.file,
            server=entrance.url,
        )
    if tls is not None and options.scoring_port:
        public = f"https://{urlsplit(entrance.public_url).hostname}:{options.scoring_port}"
    return ScoringAt(
        entrance.host if tls is None else options.host,
        options.scoring_port,
        min(port, _LAST_PORT),
        None if tls is None else tls.certificate,
        None if tls is None else tls.key,
        public,
        entrance.url,
    )


def _sign_in(options: Options, public_url: str) -> SignIn | None:
    """
    Raises:
        InvalidInput: the file of `--oidc` is wrong, or a library is missing.
    """
    if options.oidc is None:
        return None
    from torchyard.sign_in import settings as sign_in_settings
    from torchyard.sign_in.provider import Provider
    from torchyard.sign_in.routes import SignIn
    from torchyard.sign_in.sealing import Seal

    provider = Provider(sign_in_settings.read(options.oidc, public_url))
    return SignIn(provider, Seal(options.home, SystemClock()))


class _Server(listeners.Server):
    """Lets the streams go as soon as a signal comes, so that the shutdown need not wait."""

    signals: Signals
    tunnels: Tunnels

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.signals.close()
        self.tunnels.close()
        super().handle_exit(sig, frame)


def _http_server(options: Options, entrance: _Listeners, app: FastAPI) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            # By itself uvicorn would believe any program of this machine.
            proxy_headers=bool(options.proxies),
            forwarded_allow_ips=trusted_hosts(options.proxies),
            # One that is installed would answer requests that no route of ours does.
            ws="none",
            log_level="warning",
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=5,
        ),
        entrance.secure,
    )


def trusted_hosts(proxies: Sequence[Network]) -> list[str]:
    """As uvicorn compares them: a socket for IPv6 has IPv4 addresses mapped into IPv6."""
    mapped = [
        f"::ffff:{network.network_address}/{96 + network.prefixlen}"
        for network in proxies
        if network.version == 4
    ]
    return [*map(str, proxies), *mapped]


def _job_users(options: Options, is_shared: bool) -> job_users.JobUsers:
    return job_users.choose(
        options.home,
        is_shared,
        options.runner,
        options.node_folder,
        options.jobs_as_server_user,
        start_command=_start_command(options),
    )


def _start_command(options: Options) -> str:
    """What the owner typed; the command `yard` adds options of its own."""
    if options.ready_fd is None:
        return shlex.join(["yard-server", *sys.argv[1:]])
    port = f" --port {options.port}" if options.port is not None else ""
    return f"yard server start --listen{port}"


def _tell_starter(options: Options, url: str) -> None:
    if options.ready_fd is not None:
        # The command that started it may be gone by now; others will come.
        with suppress(BrokenPipeError):
            os.write(options.ready_fd, f"{url}\n".encode())
        os.close(options.ready_fd)


def _remember_database(options: Options) -> None:
    if options.database.url or options.database.file:
        home_database.remember_file(options.home, _file_of(options.database))


def _private_files(
    options: Options, messages: MessageSettings, backups: BackupSettings | None
) -> list[Path]:
    """What no datastore may show."""
    files = [
        _file_of(options.database),
        options.secrets_key.file,
        *messages.files,
        *(backups.files if backups else ()),
    ]
    if isinstance(options.tls, listeners.Tls):
        files.append(options.tls.key)
    return [file for file in files if file is not None]


def _file_of(database: Choice) -> Path | None:
    return None if database.url else database.file


def _single_server(url: str) -> Server:
    pid, now = os.getpid(), datetime.now(timezone.utc)
    return Server("", url, "", pid, processes.start_time(pid), now, now)


def _shorten_waits() -> None:
    """Let the event loop wait less for threads that compute.

    The loop gives Python's lock away whenever it reads or writes a socket, and while another thread
    computes it gets it back after a switch interval, by default 5 ms: a hundred sockets took half a
    second.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def main() -> None:
    arguments = server_options.parser().parse_args()
    _shorten_waits()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # The terminal's Ctrl-C is for the command that started an embedded server.
    if arguments.ready_fd is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(server_options.read(arguments))
    except TorchyardError as error:
        print(f"error: {error.message}", file=sys.stderr)
        # No server runs that could make room.
        hint = disk.AT_START if isinstance(error, DiskFull) else error.hint
        if hint:
            print(f"hint: {hint}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
