"""Data in and out: 1 GB and 10,000 small files, beside `cp -r`; a second job on the same data.

1 GB also by the server's URL, as from another machine: every byte in requests, beside `curl`.

    python benchmarks/data.py [--rounds 3]
    python benchmarks/data.py --namespace [--rounds 3]

With `--namespace`, as root, only that 1 GB: the server listens for other machines, with TLS, and
both commands run in a network namespace of their own.

Also how long `yard job validate` takes for 100 files, and the memory of command and server.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from figures import YARD, Case, compare, run, temporary_yard

from torchyard.base.certificates import authority_file

SMALL_FILES = 10_000
SMALL_BYTES = 2_000
JOB = """
command: test -n "$(ls ${{{{inputs.data}}}})"
environment: python
inputs:
  data: {{type: uri_folder, path: "azureml:{name}@latest", mode: {mode}}}
"""


def make_large(folder: Path) -> None:
    folder.mkdir()
    with open(folder / "large.bin", "wb") as file:
        for _ in range(1024):
            file.write(os.urandom(1 << 20))


def make_small(folder: Path) -> None:
    for number in range(SMALL_FILES):
        file = folder / f"{number // 100:03}" / f"{number % 100:02}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(SMALL_BYTES))


@dataclass(frozen=True)
class Client:
    """Whose commands run: `words` stand before each of them."""

    variables: Mapping[str, str]
    words: list[str | Path] = field(default_factory=list)

    def run(self, *command: str | Path) -> None:
        run([*self.words, *command], self.variables)


def up_and_down(folder: Path, client: Client) -> dict[str, float]:
    """A new asset each time, of bytes that the server has not seen."""
    for file in folder.rglob("*.bin"):
        with open(file, "r+b") as opened:
            opened.write(os.urandom(16))
    name = f"bench-{folder.name}"
    started = time.monotonic()
    client.run(YARD, "data", "create", "-n", name, "--path", folder, "-o", "none")
    sent = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent) as back:
        client.run(YARD, "data", "download", "-n", name, "-v", "latest", "-p", back)
        got = time.monotonic()
    return {"up_s": sent - started, "down_s": got - sent}


def by_url(variables: Mapping[str, str]) -> Client:
    """Who sends and gets all bytes in requests, as from another machine."""
    answer = subprocess.check_output([YARD, "server", "status", "-o", "json"], env=variables)
    token = Path(variables["TORCHYARD_HOME"], "token").read_text().strip()
    url = json.loads(answer)["url"]
    return Client({**variables, "TORCHYARD_URL": url, "TORCHYARD_TOKEN": token})


@contextlib.contextmanager
def namespace() -> Iterator[tuple[str, str]]:
    """A network namespace: its name, and the address of this machine there; removed at the end."""
    name = f"torchyard{os.getpid()}"
    wire, server, client = f"ty{os.getpid()}", "10.213.62.1", "10.213.62.2"
    ip = partial(subprocess.run, check=True)
    try:
        ip(["ip", "netns", "add", name])
        ip(["ip", "link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", name])
        ip(["ip", "addr", "add", f"{server}/24", "dev", wire])
        ip(["ip", "link", "set", wire, "up"])
        ip(["ip", "-n", name, "addr", "add", f"{client}/24", "dev", "eth0"])
        ip(["ip", "-n", name, "link", "set", "eth0", "up"])
        yield name, server
    finally:
        # With the namespace goes its end of the wire, and with that the other one.
        subprocess.run(["ip", "netns", "del", name], check=False)


def from_namespace(name: str, address: str, variables: Mapping[str, str], own: Path) -> Client:
    """Who logged in from another machine, with a home of their own."""
    home = Path(variables["TORCHYARD_HOME"])
    port = (home / "tls-port").read_text().strip()
    return Client(
        {
            **variables,
            "TORCHYARD_HOME": str(own),
            "TORCHYARD_URL": f"https://{address}:{port}",
            "TORCHYARD_TOKEN": (home / "token").read_text().strip(),
            "TORCHYARD_CA_CERT": str(authority_file(home)),
        },
        ["ip", "netns", "exec", name],
    )


def curl(folder: Path, client: Client) -> dict[str, float]:
    """Up what the server stores as a blob, down what `up_and_down` has stored."""
    there = f"{client.variables['TORCHYARD_URL']}/v1/workspaces/default"
    [file] = folder.rglob("*.bin")
    sha256 = subprocess.check_output(["sha256sum", file], text=True).partition(" ")[0]
    words = ["curl", "-sf", "-H", f"Authorization: Bearer {client.variables['TORCHYARD_TOKEN']}"]
    if "TORCHYARD_CA_CERT" in client.variables:
        words += ["--cacert", client.variables["TORCHYARD_CA_CERT"]]
    started = time.monotonic()
    client.run(*words, "-T", file, f"{there}/blobs/{sha256}")
    sent = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent) as back:
        client.run(*words, "-o", f"{back}/large.bin", f"{there}/blobs/{sha256}")
        got = time.monotonic()
    return {"up_s": sent - started, "down_s": got - sent}


def copy(folder: Path, variables: Mapping[str, str]) -> dict[str, float]:
    target = folder.parent / "copy"
    started = time.monotonic()
    run(["cp", "-r", folder, target], variables)
    took = time.monotonic() - started
    shutil.rmtree(target)
    return {"up_s": took, "down_s": took}


def job_on(folder: Path, variables: Mapping[str, str], mode: str) -> dict[str, float]:
    job = folder.parent / "job.yml"
    job.write_text(JOB.format(name=f"bench-{folder.name}", mode=mode))
    started = time.monotonic()
    run([YARD, "job", "create", "-f", job, "--stream"], variables)
    return {"whole_job_s": time.monotonic() - started}


def validate(folder: Path, variables: Mapping[str, str]) -> None:
    files = []
    for number in range(100):
        files.append(folder / f"v{number}.yml")
        files[-1].write_text(f"command: echo {number}\nenvironment: python\n")
    started = time.monotonic()
    for file in files:
        run([YARD, "job", "validate", "-f", file], variables)
    print(f"\nyard job validate: 100 files, one command each, {time.monotonic() - started:.1f} s")


def memory(variables: Mapping[str, str]) -> None:
    command_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    answer = subprocess.check_output([YARD, "server", "status", "-o", "json"], env=variables)
    status = Path(f"/proc/{json.loads(answer)['pid']}/status").read_text()
    server_mb = int(status.split("VmHWM:")[1].split()[0]) / 1024
    print(f"memory at the most: command {command_mb:.0f} MB, server {server_mb:.0f} MB")


def in_namespace(rounds: int) -> None:
    if os.geteuid() != 0:
        print("skipped: only root can make a network namespace")
        return
    with (
        tempfile.TemporaryDirectory() as temporary,
        namespace() as (name, address),
        temporary_yard(start=["--listen", "--jobs-as-server-user"]) as variables,
    ):
        folder = Path(temporary, "large")
        make_large(folder)
        client = from_namespace(name, address, variables, Path(temporary, "home"))
        cases = [
            Case("yard", partial(up_and_down, folder, client)),
            Case("curl", partial(curl, folder, client)),
        ]
        compare("1 GB in one file, from another network namespace, by TLS", cases, rounds)
        memory(variables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--namespace", action="store_true", help="only 1 GB from another network namespace; as root"
    )
    options = parser.parse_args()
    rounds = options.rounds
    if options.namespace:
        in_namespace(rounds)
        return
    with tempfile.TemporaryDirectory() as temporary, temporary_yard() as variables:
        for title, make in (("1 GB in one file", make_large), ("10,000 files", make_small)):
            folder = Path(temporary, make.__name__.removeprefix("make_"))
            make(folder)
            cases = [
                Case("yard data create, download", partial(up_and_down, folder, Client(variables))),
                Case("cp -r", partial(copy, folder, variables)),
            ]
            compare(title, cases, rounds)
            if make is make_large:
                client = by_url(variables)
                remote = [
                    Case("yard, by the server's URL", partial(up_and_down, folder, client)),
                    Case("curl", partial(curl, folder, client)),
                ]
                compare(f"{title}, as from another machine", remote, rounds)
        memory(variables)
        modes = [
            Case(f"a job with the 10,000 files, {mode}", partial(job_on, folder, variables, mode))
            for mode in ("ro_mount", "download")
        ]
        compare("a job on data that is in the datastore", modes, rounds)
        validate(Path(temporary), variables)


if __name__ == "__main__":
    main()
