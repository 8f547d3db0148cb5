"""Data in and out: 1 GB and 10,000 small files, beside `cp -r`; a second job on the same data.

1 GB also by the server's URL, as from another machine: every byte in requests, beside `curl`.

    python benchmarks/data.py [--rounds 3]

Also how long `yard job validate` takes for 100 files, and the memory of command and server.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from figures import YARD, Case, compare, run, temporary_yard

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


def up_and_down(folder: Path, variables: Mapping[str, str]) -> dict[str, float]:
    """A new asset each time, of bytes that the server has not seen."""
    for file in folder.rglob("*.bin"):
        with open(file, "r+b") as opened:
            opened.write(os.urandom(16))
    name = f"bench-{folder.name}"
    started = time.monotonic()
    run([YARD, "data", "create", "-n", name, "--path", folder, "-o", "none"], variables)
    sent = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent) as back:
        run([YARD, "data", "download", "-n", name, "-v", "latest", "-p", back], variables)
        got = time.monotonic()
    return {"up_s": sent - started, "down_s": got - sent}


def by_url(variables: Mapping[str, str]) -> dict[str, str]:
    """What makes commands send and get all bytes in requests, as from another machine."""
    answer = subprocess.check_output([YARD, "server", "status", "-o", "json"], env=variables)
    token = Path(variables["TORCHYARD_HOME"], "token").read_text().strip()
    return {**variables, "TORCHYARD_URL": json.loads(answer)["url"], "TORCHYARD_TOKEN": token}


def curl(folder: Path, variables: Mapping[str, str]) -> dict[str, float]:
    """Up what the server stores as a blob, down what `up_and_down` has stored."""
    remote = by_url(variables)
    there = f"{remote['TORCHYARD_URL']}/v1/workspaces/default"
    [file] = folder.rglob("*.bin")
    sha256 = subprocess.check_output(["sha256sum", file], text=True).partition(" ")[0]
    words = ["curl", "-sf", "-H", f"Authorization: Bearer {remote['TORCHYARD_TOKEN']}"]
    started = time.monotonic()
    run([*words, "-T", file, f"{there}/blobs/{sha256}"], variables)
    sent = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent) as back:
        run([*words, "-o", f"{back}/large.bin", f"{there}/blobs/{sha256}"], variables)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as temporary, temporary_yard() as variables:
        for title, make in (("1 GB in one file", make_large), ("10,000 files", make_small)):
            folder = Path(temporary, make.__name__.removeprefix("make_"))
            make(folder)
            cases = [
                Case("yard data create, download", partial(up_and_down, folder, variables)),
                Case("cp -r", partial(copy, folder, variables)),
            ]
            compare(title, cases, rounds)
            if make is make_large:
                remote = [
                    Case(
                        "yard, by the server's URL", partial(up_and_down, folder, by_url(variables))
                    ),
                    Case("curl", partial(curl, folder, variables)),
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
