"""Bring the worker's program to a node of another machine, and start it there.

Sent as text, and run by the node's own Python: `python3 bootstrap_program.py --node K`, with a
`NodeStart` (shared/node_start.py) as JSON in the first line of its standard input, or in the file
that `--start` names, so that the program itself may come by standard input.

Owns: the node's folder, the worker's zip in it, what is told to the server when that fails.
Leaves: everything else to worker/node/starter.py, which takes this process's place.
Always: standard library only, Python 3.9 and later, nothing of torchyard is imported; a zip is run
only when its sha256 is the one that was told; the token is in no file and on no command line. What
a node needs that has the zip already is imported first; the rest, which takes longer than all that
this program does, only where it is used.

Options: `--address A` is this node's in the engine's network; `--devices JSON` its GPUs;
`--until-eof` ends the node when standard input is closed; `--die-with-parent` ends it with the
process that started it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import http.client
    import ssl
    from typing import IO, Any, NoReturn

# As in worker/node/starter.py, for nodes that have the worker.
_TRY_FOR_S = 60.0
# Another machine that refuses the connection is reached: its server restarts. At these addresses
# a node asks itself.
_RESTART_S = 600.0
_LOOPBACK = ("127.", "localhost", "[::1]")
_PAUSE_S = 1.0
# An address that does not answer keeps nobody from trying the next.
_CONNECT_S = 5.0
_TIMEOUT_S = 30.0
_BLOCK_BYTES = 1 << 20
# Python 3.9 has no name for it; see shared/server_routes.py.
_PARTIAL_CHAIN = 0x80000
_CODE = "node_unusable"
EXIT_CODE = 125
"""Of a node whose worker could not be started."""
_FLAGS = ("until-eof", "die-with-parent")


class _Unusable(Exception):
    """This node can't run the worker."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class _Refused(Exception):
    """The server understands the request and refuses it."""

    def __init__(self, status: int, text: bytes) -> None:
        super().__init__(f"{status} {text[:300]!r}")
        self.status = status


def main() -> int:
    options = _options()
    node = int(options["node"])
    start = json.loads(_start_text(options["start"]))
    try:
        if tuple(sys.version_info) < (3, 9):
            version = ".".join(map(str, sys.version_info[:3]))
            raise _Unusable(
                f"its Python is {version}, and the worker needs 3.9 or later",
                "name another in the cluster's settings: `torchyard: {python: /path/to/python3}`",
            )
        folder = _node_folder(start["folder"])
        worker = _worker(start, folder)
    except _Refused as refusal:
        if refusal.status in (401, 410):
            print("the attempt is over on the server", file=sys.stderr)
            return 0
        return _fail(start, node, _Unusable(f"the server refuses it: {refusal}"))
    except _Unusable as error:
        return _fail(start, node, error)
    except OSError as error:
        return _fail(start, node, _Unusable(str(error), "see the engine's log of this node"))
    start["folder"] = folder
    _become(worker, start, options)


def _options() -> dict[str, str]:
    """By name; empty if not given."""
    options = dict.fromkeys(("node", "address", "devices", *_FLAGS), "")
    options["start"] = "-"
    words = iter(sys.argv[1:])
    for word in words:
        name = word[2:]
        if not word.startswith("--") or name not in options:
            sys.exit(f"bootstrap_program.py: unknown option {word}")
        options[name] = "1" if name in _FLAGS else next(words, "")
    return options


def _start_text(source: str) -> str | bytes:
    if source != "-":
        with open(source, encoding="utf-8") as file:
            return file.read()
    # Not through a buffer: what follows the line is not this program's.
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        line += byte
    return line


def _node_folder(name: str) -> str:
    folder = os.path.abspath(
        os.path.expanduser(
            os.path.expandvars(name)
            or os.environ.get("TORCHYARD_NODE_FOLDER")
            or "~/.cache/torchyard-node"
        )
    )
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.stat(folder)
    except OSError as error:
        raise _Unusable(
            f"its folder `{folder}` can't be made: {error.strerror}",
            "name another in the cluster's settings: `torchyard: {node_folder: /scratch/me}`",
        ) from error
    if status.st_uid != os.geteuid():
        raise _Unusable(
            f"its folder `{folder}` belongs to another user",
            "name one of your own in the cluster's settings: `torchyard: {node_folder: ~/yard}`",
        )
    if status.st_mode & 0o077:
        os.chmod(folder, 0o700)
    return folder


def _worker(start: dict[str, Any], folder: str) -> str:
    """The path of the worker's zip, fetched when it is not there."""
    workers = os.path.join(folder, "workers")
    target = os.path.join(workers, start["worker"] + ".pyz")
    if not start["worker"].isalnum():
        raise _Unusable("it was told of no worker program")
    if _sha256(target) == start["worker"]:
        return target
    import tempfile

    os.makedirs(workers, mode=0o700, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=workers, prefix=".draft-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            _fetch(start, "/worker?sha256=" + start["worker"], file)
        if _sha256(draft) != start["worker"]:
            raise _Unusable(
                "the worker's program that it got is not the one that it was told of",
                "start the server again if torchyard was upgraded while it ran",
            )
        os.replace(draft, target)
    except BaseException:
        if os.path.exists(draft):
            os.unlink(draft)
        raise
    return target


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(_BLOCK_BYTES), b""):
                digest.update(block)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()


def _fetch(start: dict[str, Any], path: str, file: IO[bytes]) -> None:
    import http.client

    began = time.monotonic()
    while True:
        failures = []
        limit_s = _TRY_FOR_S
        for url in start["server_urls"]:
            file.seek(0)
            file.truncate()
            try:
                _request(start, url, "GET", path, None, file)
                file.flush()
                return
            except (OSError, http.client.HTTPException) as error:
                if getattr(error, "errno", None) in (28, 122):  # ENOSPC, EDQUOT
                    raise
                failures.append(f"{url}: {error}")
                is_here = url.partition("://")[2].startswith(_LOOPBACK)
                if isinstance(error, ConnectionRefusedError) and not is_here:
                    limit_s = _RESTART_S
        if time.monotonic() > began + limit_s:
            raise _unreachable(start, failures)
        time.sleep(_PAUSE_S)


def _unreachable(start: dict[str, Any], failures: list[str]) -> _Unusable:
    first = start["server_urls"][0] if start["server_urls"] else ""
    return _Unusable(
        f"it can't reach the server: {'; '.join(failures) or 'it was told no address'}",
        "open this TCP port of the server to the nodes, or set HTTPS_PROXY on them; "
        f"`curl -k {first}/livez` there tries it",
    )


def _request(
    start: dict[str, Any], url: str, method: str, path: str, body: str | None, file: IO[bytes]
) -> None:
    """
    Raises:
        OSError: it did not answer, or fails; try again.
        _Refused: it won't answer otherwise.
    """
    connection, prefix = _connection(url, start["server_certificate"])
    try:
        connection.connect()
        connection.sock.settimeout(_TIMEOUT_S)
        headers = {
            "Authorization": "Bearer " + start["report_token"],
            "Content-Type": "application/json",
        }
        path = "/v1/attempts/" + start["attempt_id"] + path
        connection.request(method, prefix + path, body, headers)
        response = connection.getresponse()
        signed = response.getheader("X-Torchyard-Server")
        if start["server_id"] and signed != start["server_id"]:
            raise OSError("another server answers there")
        if response.status >= 500 or response.status == 429:
            raise OSError(f"the server fails: {response.status}")
        if response.status >= 300:
            raise _Refused(response.status, response.read(1 << 16))
        for block in iter(lambda: response.read(_BLOCK_BYTES), b""):
            file.write(block)
        if response.length:
            raise OSError("the answer was cut off")
    finally:
        connection.close()


def _connection(url: str, certificate: str) -> tuple[http.client.HTTPConnection, str]:
    """A connection, and what precedes the paths of its requests."""
    import http.client
    from urllib.parse import urlsplit
    from urllib.request import getproxies_environment, proxy_bypass

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    base = parts.path.rstrip("/")
    proxy = ""
    if not (host in ("localhost", "::1") or host.startswith("127.")):
        proxies = getproxies_environment()
        if not proxy_bypass(f"{host}:{port}", proxies):
            proxy = proxies.get(parts.scheme) or ""
    via = urlsplit(proxy if "://" in proxy else "http://" + proxy)
    proxy_host, proxy_port = via.hostname or "", via.port or 80
    if parts.scheme != "https":
        if proxy:
            through = http.client.HTTPConnection(proxy_host, proxy_port, timeout=_CONNECT_S)
            return through, f"http://{parts.netloc}{base}"
        return http.client.HTTPConnection(host, port, timeout=_CONNECT_S), base
    context = _trusting(certificate)
    if not proxy:
        made = http.client.HTTPSConnection(host, port, timeout=_CONNECT_S, context=context)
        return made, base
    made = http.client.HTTPSConnection(proxy_host, proxy_port, timeout=_CONNECT_S, context=context)
    made.set_tunnel(host, port or 443)
    return made, base


def _trusting(certificate: str) -> ssl.SSLContext:
    import ssl

    if not certificate:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= _PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    return context


def _fail(start: dict[str, Any], node: int, error: _Unusable) -> int:
    """Tell the server why this node has no worker; the exit code."""
    import http.client
    import tempfile

    message = f"node {node} ({os.uname().nodename}) can't be used: {error.message}"
    print(f"error: {message}\nhint: {error.hint}", file=sys.stderr, flush=True)
    body = {
        "exit_code": EXIT_CODE,
        "error": {"code": _CODE, "message": message, "hint": error.hint},
    }
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds // 1000:06d}Z"
    event = {"seq": 0, "at": at, "kind": "node_exited", "body": body}
    text = json.dumps({"node": node, "events": [event]})
    for url in start["server_urls"]:
        try:
            with tempfile.SpooledTemporaryFile(1 << 20) as response:
                _request(start, url, "POST", "/report", text, response)
            break
        except (OSError, http.client.HTTPException, _Refused):
            pass  # the engine has it from the log
    return EXIT_CODE


def _become(worker: str, start: dict[str, Any], options: dict[str, str]) -> NoReturn:
    """Run the worker's starter in place of this program."""
    # By a pipe: it is in no file, on no command line and in no environment.
    reader, writer = os.pipe()
    os.write(writer, json.dumps(start).encode())
    os.close(writer)
    os.set_inheritable(reader, True)
    words = [sys.executable, "-I", "-S", worker, "--start", str(reader)]
    for name in ("node", "address", "devices", *_FLAGS):
        words += [f"--{name}", options[name]]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, words, {**os.environ, **start["variables"]})


if __name__ == "__main__":
    sys.exit(main())
