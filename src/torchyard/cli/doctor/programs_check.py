"""Check the programs that prepare jobs: Python, uv, the package index, podman, git.

Owns: one function per check, which returns its result and a remedy.
Leaves: the machine itself to machine_check.py, printing to command.py.
Always: standard library only; no program outlives its check.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from pathlib import Path

from torchyard.cli.doctor.findings import Finding, last_line, ok, run, run_leashed, uv_program
from torchyard.shared import open_mpi


def python() -> Finding:
    version = platform.python_version()
    where = f"{version} at {sys.executable}, {platform.system()} {platform.machine()}"
    if sys.platform != "linux":
        remedy = "set TORCHYARD_URL to a server on Linux; jobs and the server run there only"
        return Finding("python", "note", where, remedy)
    return Finding("python", "ok", where)


def uv() -> Finding:
    """uv comes with torchyard; without it, no environment can be built."""
    program = uv_program()
    if program is None:
        return Finding(
            "uv", "wrong", "not found", "install torchyard again with `pip install torchyard`"
        )
    ran = run(program, "--version")
    if ran.returncode:
        return Finding(
            "uv", "wrong", f"`{program}` fails: {last_line(ran.stderr)}", "install uv again"
        )
    return Finding("uv", "ok", f"{ran.stdout.strip()} at {program}")


def packages() -> Finding:
    """Where packages come from, and whether that index answers."""
    program = uv_program()
    if program is None:
        return Finding("packages", "note", "not checked: no uv")
    pip = run(sys.executable, "-m", "pip", "config", "list")
    names = [line.split("=", 1)[0] for line in pip.stdout.splitlines()]
    configured = " ".join(name for name in names if "index" in name or "find" in name)
    where = f"pip is configured ({configured})" if configured else "the default index"
    with tempfile.TemporaryDirectory(prefix="yard-doctor-") as folder:
        requirements = Path(folder) / "wanted.txt"
        requirements.write_text("pip\n")
        if pip.returncode:
            ran = run(program, "pip", "compile", "--quiet", "--no-deps", str(requirements))
        else:
            ran = run(
                sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input",
                "--disable-pip-version-check", "--retries", "0", "--timeout", "5",
                "--dest", folder, "--requirement", str(requirements),
            )  # fmt: skip
    if ran.returncode:
        return Finding(
            "packages",
            "wrong",
            f"{where}; no package could be downloaded: {last_line(ran.stderr)[:200]}",
            "set an index that answers, with `pip config set global.index-url URL` or "
            "UV_DEFAULT_INDEX; environments that are already built keep working",
        )
    return ok("packages", f"{where}; it answers")


def containers() -> Finding:
    """Only images and Dockerfiles need an engine; a client without an engine doesn't count."""
    problems = []
    for name, words in (
        ("podman", ("info", "--format", "{{.Version.Version}}")),
        ("docker", ("version", "--format", "{{.Server.Version}}")),
    ):
        program = shutil.which(name)
        if program is None:
            continue
        ran = run_leashed(program, *words)
        if ran.returncode == 0:
            return ok("containers", f"{name} {ran.stdout.strip()} at {program}")
        problems.append(f"{program} does not work ({last_line(ran.stderr)[:200]})")
    return Finding(
        "containers",
        "note",
        "; ".join(problems) or "neither podman nor docker",
        "`apt-get install podman` if environments use images or Dockerfiles",
    )


def mpi() -> Finding:
    """Only jobs of type mpi need Open MPI."""
    program = open_mpi.missing()
    if program:
        problem = f"`{program}` not found: jobs of `distribution.type: mpi` fail (`mpi_missing`)"
        return Finding("mpi", "note", problem, open_mpi.INSTALL)
    version = run("mpirun", "--version").stdout.strip().splitlines()[:1]
    return ok("mpi", *version)


def git() -> Finding:
    if shutil.which("git") is None:
        return Finding(
            "git", "note", "not found: jobs don't record their commit", "install git if you use it"
        )
    return ok("git", run("git", "--version").stdout.strip())
