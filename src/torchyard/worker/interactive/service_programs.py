"""The services of a node: programs beside the ranks that people open in a browser.

Owns: their command lines, starting them again, what is told of them, connections to them.
Leaves: processes to launch/guests.py, the tunnel to tunnel.py, who may see them to the server.
Always: JupyterLab and TensorBoard listen at a socket file that their own user alone can open, and
at no port; a service that dies is started again a few times, and then said to have failed; one
whose program is not there fails at once.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.shared import channels, unix_sockets
from torchyard.shared.plan import LaunchPlan, ServicePlan
from torchyard.worker.interactive import handed_sockets
from torchyard.worker.interactive.tunnel import Channel, ChannelClosed
from torchyard.worker.launch.guests import Guest, Guests

if TYPE_CHECKING:
    from torchyard.worker.system.network_space import NetworkSpace

STARTING, RUNNING, FAILED, ENDED = "Starting", "Running", "Failed", "Ended"
_JUPYTER, _TENSORBOARD, _VS_CODE, _CUSTOM = "jupyter_lab", "tensor_board", "vs_code", "custom"
_MOST_RESTARTS = 4
_NO_PROGRAM = 127
_STEADY_S = 60.0
_DELAYS_S = (1.0, 3.0, 10.0, 30.0)
_LISTEN_LIMIT_S = 180.0
_LOOK_EVERY_S = 0.3
_CONNECT_LIMIT_S = 10.0
_READ_BYTES = channels.PIECE_BYTES
# The Python of the job if it has the package, else that of the environment beside it.
_CHOOSE = """\
find='import importlib.util as u, sys; sys.exit(u.find_spec("{package}") is None)'
if python -c "$find" 2>/dev/null
then exec python {arguments}
elif [ -x {layer}/bin/python ]
then unset PYTHONPATH PYTHONHOME TORCHYARD_ERRORS; exec {layer}/bin/python {arguments}
else
echo 'torchyard: the environment has no {package}, and none could be built beside it' >&2
exit 127
fi
"""
# It has no port, which it would show, and write down for other TensorBoards of the machine.
_TENSORBOARD_PROGRAM = (
    "import sys; from tensorboard import main, manager, program; "
    "program.WerkzeugServer.get_url = lambda self: 'its socket'; "
    "manager.write_info_file = manager.remove_info_file = lambda *_: None; "
    "sys.exit(main.run_main())"
)
_KERNEL_PROGRAM = (
    "import importlib.util, sys\n"
    "if importlib.util.find_spec('ipykernel') is None: sys.path.append({site!r})\n"
    "from ipykernel import kernelapp\n"
    "kernelapp.launch_new_instance()\n"
)
_VS_CODE_COMMAND = (
    "command -v code-server >/dev/null || {{ echo 'torchyard: the environment has no code-server' "
    ">&2; exit 127; }}; exec code-server --auth none --disable-telemetry --socket {socket} ."
)


@dataclass
class _Running:
    """A service as it is now. `socket` is the file that it listens at, empty for a `port`."""

    plan: ServicePlan
    socket: str = ""
    port: int = 0
    restarts: int = 0
    state: str = STARTING
    guest: Guest | None = field(default=None)


class NodeServices:
    """Those of one node, from the start of its ranks to their end.

    Args:
        report: tells the server of a service: name, kind, state, message, restarts, port.
        network: the ranks' own, where they have one.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        node: int,
        guests: Guests,
        temporary: Path,
        work: Path,
        logs: Path,
        report: Callable[[Mapping[str, Any]], None],
        network: NetworkSpace | None = None,
    ) -> None:
        self._plan = plan
        self._guests = guests
        self._temporary = temporary
        self._work = work
        self._logs = logs
        self._report = report
        self._network = network
        self._is_closed = threading.Event()
        services = [service for service in plan.services if service.all_nodes or node == 0]
        self._services = {
            service.name: _Running(service, self._socket(number, service), service.port)
            for number, service in enumerate(services)
        }

    def start(self) -> list[tuple[Path, str]]:
        """Start them all; returns the logs to ship, with their names."""
        logs = []
        for name, service in self._services.items():
            if service.plan.kind == _CUSTOM and not service.plan.command:
                self._tell(service, RUNNING, "the job's script serves it")
                continue
            log = self._logs / f"service-{name}.log"
            logs.append((log, f"logs/services/{name}.log"))
            threading.Thread(
                target=self._keep_running, args=(service, log), name=f"service-{name}", daemon=True
            ).start()
        return logs

    def close(self) -> None:
        """The ranks have ended; the processes end with them."""
        self._is_closed.set()
        for service in self._services.values():
            if service.state in (STARTING, RUNNING):
                self._tell(service, ENDED, "")

    def serve(self, channel: Channel, name: str) -> None:
        """Connect a channel to a service, until one of them ends."""
        service = self._services.get(name)
        if service is None:
            channel.close(f"this node has no service `{name}`")
            return
        try:
            connection = self._connect(service)
        except OSError as error:
            channel.close(f"`{name}` does not listen: {error.strerror or error}")
            return
        with connection:
            _pass_both_ways(channel, connection)

    def _socket(self, number: int, service: ServicePlan) -> str:
        if service.is_handed:
            return "" if service.socket else str(handed_sockets.path(self._temporary, service))
        if service.kind == _CUSTOM:
            return ""
        return str(self._temporary / f"service-{number}.sock")

    def _connect(self, service: _Running) -> socket.socket:
        if service.socket:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        elif service.plan.is_handed:
            raise PermissionError(errno.EACCES, "only the server reaches it")
        else:
            if self._network is not None:
                connection = self._network.unconnected()
            else:
                connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            connection.settimeout(_CONNECT_LIMIT_S)
            if service.socket:
                unix_sockets.connect(connection, service.socket)
            else:
                connection.connect(("127.0.0.1", service.port))
            connection.settimeout(None)
        except OSError:
            connection.close()
            raise
        return connection

    def _keep_running(self, service: _Running, log: Path) -> None:
        while not self._is_closed.is_set():
            started_at = time.monotonic()
            message = self._run_once(service, log)
            if self._is_closed.is_set():
                return
            if time.monotonic() - started_at > _STEADY_S:
                service.restarts = 0
            is_missing = service.guest is not None and service.guest.exit_code == _NO_PROGRAM
            if is_missing:
                message = "the environment lacks its program"
            if is_missing or service.restarts >= _MOST_RESTARTS:
                self._tell(service, FAILED, f"{message}; see {log.name}")
                return
            delay_s = _DELAYS_S[min(service.restarts, len(_DELAYS_S) - 1)]
            service.restarts += 1
            self._tell(service, STARTING, f"{message}; it is started again")
            self._is_closed.wait(delay_s)

    def _run_once(self, service: _Running, log: Path) -> str:
        """Returns how it ended."""
        if service.socket:
            Path(service.socket).unlink(missing_ok=True)
        elif not service.plan.port:
            service.port = _free_port()
        words, variables = self._command(service)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        guest = service.guest = Guest(words, 0, variables, actions)
        self._guests.start(guest)
        if not guest.wait_for_start():
            return f"it could not be started: {guest.error}"
        self._tell(service, STARTING, "")
        if self._listens(service, guest):
            self._tell(service, RUNNING, "")
            guest.wait_for_end()
        elif not guest.has_ended:
            self._guests.send(guest, signal.SIGKILL)
            guest.wait_for_end(_CONNECT_LIMIT_S)
            return f"it did not listen within {_LISTEN_LIMIT_S:.0f} seconds"
        return f"it ended with code {guest.exit_code}"

    def _listens(self, service: _Running, guest: Guest) -> bool:
        deadline = time.monotonic() + _LISTEN_LIMIT_S
        while not guest.has_ended and time.monotonic() < deadline:
            try:
                self._connect(service).close()
                return True
            except OSError:
                guest.wait_for_end(_LOOK_EVERY_S)
        return False

    def _command(self, service: _Running) -> tuple[Sequence[str], dict[str, str | None]]:
        """What starts it, in the shell of the rank's surroundings, and further variables."""
        plan = service.plan
        # Its own records would be taken for those of the rank.
        variables: dict[str, str | None] = {"TORCHYARD_ERRORS": None}
        if plan.kind == _JUPYTER:
            folder = self._temporary / "jupyter"
            self._write_kernel(folder / "data")
            variables |= {
                "JUPYTER_CONFIG_DIR": str(folder / "config"),
                "JUPYTER_DATA_DIR": str(folder / "data"),
                "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
                "JUPYTER_PREFER_ENV_PATH": "0",
                "SHELL": "/bin/bash" if os.access("/bin/bash", os.X_OK) else None,
            }
            return (
                "",
                "-c",
                self._choose("jupyterlab", _jupyter(service.socket, self._work / plan.log_dir)),
            ), (variables)
        if plan.kind == _TENSORBOARD:
            logs = os.path.join(str(self._work), plan.log_dir.replace("~/", "", 1) or ".")
            words = ["-c", _TENSORBOARD_PROGRAM, "--logdir", logs]
            words += ["--host", f"unix://{service.socket}"]
            return ("", "-c", self._choose("tensorboard", words)), variables
        if plan.kind == _VS_CODE:
            command = _VS_CODE_COMMAND.format(socket=shlex.quote(service.socket))
            return ("", "-c", command), variables
        variables["PORT"] = str(service.port)
        return ("", "-c", plan.command), variables

    def _choose(self, package: str, words: Sequence[str]) -> str:
        arguments = " ".join(map(shlex.quote, words))
        layer = shlex.quote(self._plan.services_environment or "/nonexistent")
        return _CHOOSE.format(package=package, arguments=arguments, layer=layer)

    def _write_kernel(self, data: Path) -> None:
        """A kernel of the job's own Python, for a JupyterLab that runs in another one."""
        layer = Path(self._plan.services_environment or "/nonexistent")
        site = next(iter(sorted(layer.glob("lib/python3*/site-packages"))), layer)
        folder = data / "kernels" / "job"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        program = _KERNEL_PROGRAM.format(site=str(site))
        kernel = {
            "argv": ["python", "-c", program, "-f", "{connection_file}"],
            "display_name": "Python of the job",
            "language": "python",
            "metadata": {"debugger": True},
        }
        (folder / "kernel.json").write_text(json.dumps(kernel))

    def _tell(self, service: _Running, state: str, message: str) -> None:
        service.state = state
        self._report(
            {
                "name": service.plan.name,
                "type": service.plan.kind,
                "state": state,
                "message": message,
                "restarts": service.restarts,
                "port": service.port,
            }
        )


def _jupyter(socket_file: str, work: Path) -> list[str]:
    """Who reaches the socket file was let in by the server."""
    settings = {
        "ServerApp.sock": socket_file,
        "ServerApp.sock_mode": "0600",
        "ServerApp.root_dir": str(work),
        "ServerApp.open_browser": "False",
        "ServerApp.allow_remote_access": "True",
        "ServerApp.allow_root": "True",
        "IdentityProvider.token": "",
        "PasswordIdentityProvider.hashed_password": "",
        "MultiKernelManager.default_kernel_name": "job",
        "LabApp.news_url": "None",
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    }
    return ["-m", "jupyterlab", *(f"--{name}={value}" for name, value in settings.items())]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _pass_both_ways(channel: Channel, connection: socket.socket) -> None:
    def to_service() -> None:
        try:
            while data := channel.read():
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except ChannelClosed:
            _shut(connection)
        except OSError:
            channel.close("the service closed the connection")

    sender = threading.Thread(target=to_service, name="to-service", daemon=True)
    sender.start()
    try:
        while data := connection.recv(_READ_BYTES):
            channel.write(data)
        channel.end()
    except OSError:
        channel.close("the service closed the connection")
    except ChannelClosed:
        pass
    # The server closes the channel when it has all.
    sender.join()


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
