"""Nodes with a network stack of their own: own address, own loopback, a wire between them.

Owns: network namespaces on a bridge of their own name, an engine whose workers run in them, a
server that listens on that bridge.
Leaves: what runs there to the tests.
Always: nothing of the machine's own network is changed but one bridge and its wires, which are
gone at the end, as are those that an earlier, killed test session left.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import uvicorn

from torchyard import server
from torchyard.app import application
from torchyard.app.application import Parts
from torchyard.executors.executor import Handle
from torchyard.executors.local import LocalExecutor
from torchyard.executors.spawner import DirectSpawner
from torchyard.shared.plan import LaunchPlan

_PREFIX = "torchyard-"
_OWN = re.compile(r"^(torchyard-(\d+)-\d+|ty(\d+)b)$")
INTERFACE = "eth0"


def why_not() -> str:
    """Why this machine can't have them; empty when it can."""
    if os.geteuid() != 0:
        return "network namespaces are made by root"
    if shutil.which("ip") is None:
        return "`ip` is not here: apt-get install iproute2"
    probe = ["unshare", "--net", "--mount", "true"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        return "this kernel or container allows no network namespaces"
    return ""


class Site:
    """Namespaces 0 to `count` - 1, one a node, on one wire; the server is at `.1` of it.

    Args:
        folder: for programs and a home of the server's.
    """

    def __init__(self, folder: Path, count: int = 2) -> None:
        self._folder = folder
        self._bridge = f"ty{os.getpid()}b"
        self.names = [f"{_PREFIX}{os.getpid()}-{node}" for node in range(count)]
        self._net = _free_net()
        self.server_address = f"{self._net}.1"
        self.addresses = [f"{self._net}.{node + 10}" for node in range(count)]

    def __enter__(self) -> Site:
        _remove_left()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.server_address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for node, name in enumerate(self.names):
            wire = f"ty{os.getpid()}w{node}"
            _ip("netns", "add", name)
            peer = ("peer", "name", INTERFACE, "netns", name)
            _ip("link", "add", wire, "type", "veth", *peer)
            _ip("link", "set", wire, "master", self._bridge, "up")
            _ip("-n", name, "addr", "add", f"{self.addresses[node]}/24", "dev", INTERFACE)
            _ip("-n", name, "link", "set", INTERFACE, "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def close(self) -> None:
        for name in self.names:
            _remove_namespace(name)
        _ip("link", "del", self._bridge, check=False)

    def run(self, node: int, *words: str) -> str:
        """What a program prints on that node."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.names[node], *words],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def before(self, node: int, script: str) -> None:
        """Bash that runs on that node before its worker, in a mount namespace of its own.

        FOLDER is the node's; a `python` of its own may be named by setting PYTHON.
        """
        (self._folder / f"before-{node}.sh").write_text(script)

    def drop(self, node: int, first: int, last: int) -> None:
        """A firewall on that node that drops connections to these ports without an answer."""
        self.run(node, "nft", "add", "table", "inet", "torchyard")
        chain = "{ type filter hook input priority 0; }"
        self.run(node, "nft", "add", "chain", "inet", "torchyard", "input", chain)
        # Answers to what the node itself began come in by such ports, too.
        rule = f"tcp flags & (syn | ack) == syn tcp dport {first}-{last} drop"
        self.run(node, "nft", "add", "rule", "inet", "torchyard", "input", *rule.split())

    def prohibit(self, node: int, first: int, last: int) -> None:
        """A route on that node that lets nothing through to these ports of others."""
        _ip(
            *("-n", self.names[node], "rule", "add", "ipproto", "tcp"),
            *("dport", f"{first}-{last}", "prohibit"),
        )

    def set_mtu(self, node: int, size_bytes: int) -> None:
        _ip("-n", self.names[node], "link", "set", INTERFACE, "mtu", str(size_bytes))

    def mend(self) -> None:
        """Take back all that the last test did."""
        for node, name in enumerate(self.names):
            (self._folder / f"before-{node}.sh").unlink(missing_ok=True)
            if shutil.which("nft") is not None:
                self.run(node, "nft", "flush", "ruleset")
            for line in self.run(node, "ip", "rule").splitlines():
                if "dport" in line:
                    _ip("-n", name, "rule", "del", "pref", line.partition(":")[0])
            self.set_mtu(node, 1500)

    def python(self, node: int, folder: Path) -> str:
        """A Python in the namespace of the node, whose files are in `folder`."""
        program = self._folder / f"python-{node}"
        before = self._folder / f"before-{node}.sh"
        program.write_text(
            "#!/bin/bash\n"
            f"export FOLDER={folder} PYTHON={sys.executable}\n"
            f"exec ip netns exec {self.names[node]} bash -c "
            '\'[ -e "$0" ] && . "$0"; exec "$PYTHON" "$@"\' '
            f'{before} "$@"\n'
        )
        program.chmod(0o755)
        return str(program)


class NamespaceSpawner(DirectSpawner):
    """Each worker has a fork server of its own, since that is in the namespace of one node."""

    def __init__(self, home: Path, environ: Mapping[str, str], site: Site) -> None:
        super().__init__(home, environ, sys.executable)
        self._here = (home, environ)
        self._site = site

    def spawn(self, plan: LaunchPlan, node: int, locks: Sequence[int]) -> dict[str, int]:
        home, environ = self._here
        python = self._site.python(node, Path(plan.scratch, f"node-{node}"))
        return DirectSpawner(home, environ, python).spawn(plan, node, locks)


class NamespaceExecutor(LocalExecutor):
    """The local engine, with each node in a namespace, as if it were a machine of its own."""

    def __init__(self, home: Path, environ: Mapping[str, str], site: Site) -> None:
        super().__init__(home, environ, spawner=NamespaceSpawner(home, environ, site))

    def launch(self, plan: LaunchPlan) -> Handle:
        return super().launch(replace(plan, single_host=False))

    def recover(self, plan: LaunchPlan) -> Handle:
        return super().recover(replace(plan, single_host=False))


@contextlib.contextmanager
def serving(site: Site, home: Path, new_url: Callable[[], str]) -> Iterator[Parts]:
    """A whole server at the site's wire, its token in the home folder."""
    home.mkdir(mode=0o700, exist_ok=True)
    # Not one of the ports that tests block.
    listener = server.listen(home, site.server_address, None)
    url = f"http://{site.server_address}:{listener.getsockname()[1]}"
    executor = NamespaceExecutor(home, os.environ, site)
    parts = application.build(home, url, os.environ, executor=executor, database=new_url())
    server.ensure_token(parts, home / "token")
    (home / "url").write_text(url)
    running = uvicorn.Server(uvicorn.Config(application.create_app(parts), log_level="warning"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield parts
    finally:
        parts.services.signals.close()
        running.should_exit = True
        thread.join(60)


def _free_net() -> str:
    """The first three numbers of a net that the machine does not use."""
    used = subprocess.run(["ip", "-4", "addr"], capture_output=True, text=True).stdout
    start = os.getpid() % 200
    return next(
        net for third in range(start, start + 50) if f"{(net := f'10.213.{third}')}." not in used
    )


def _remove_left() -> None:
    """What sessions left that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
    names = [line.split()[0] for line in listed.splitlines() if line]
    names += [line.split()[1].split("@")[0].rstrip(":") for line in links.splitlines()]
    for name in names:
        match = _OWN.match(name)
        if match is None or Path(f"/proc/{match[2] or match[3]}").exists():
            continue
        if match[2]:
            _remove_namespace(name)
        else:
            _ip("link", "del", name, check=False)


def _remove_namespace(name: str) -> None:
    listing = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
    for pid in listing.stdout.split():
        with contextlib.suppress(OSError):
            os.kill(int(pid), signal.SIGKILL)
    _ip("netns", "del", name, check=False)


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 or not check, (words, done.stderr)
