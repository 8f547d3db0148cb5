"""What a new user does: install torchyard from an index, run the demo, lay out a project, train it.

Owns: an index of this commit's packages, and a user without rights, compiler, git or Node.
Leaves: the commands themselves to their own tests.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import other_pythons
import run_uv
import torchyard
from end_to_end.test_guides import lines
from end_to_end.yard_under_test import REPOSITORY, remove

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(1200)]
_NOBODY = 65534
_NEXT = "0.1.1"
# What a machine for training may lack.
_LEFT_OUT = re.compile(
    r"(cc|c\+\+|gcc|g\+\+|cpp|clang|git|make|node|npm|ld|as|uv|uvx|yard)([-.\d].*)?"
)


@dataclass(frozen=True)
class User:
    """Someone with a home folder and nothing else."""

    home: Path
    index: str

    def run(self, *words: object, cwd: str = "", expect: int = 0, **variables: str) -> str:
        nobody = _NOBODY if _is_root() else None
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.home / cwd,
            env={**self._variables, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            user=nobody,
            group=nobody,
            extra_groups=[] if _is_root() else None,
        )
        assert done.returncode == expect, f"{words}: {done.returncode}\n{done.stdout}"
        return done.stdout

    @property
    def _variables(self) -> dict[str, str]:
        settings = dict(_pip_settings())
        settings["extra-index-url"] = f"{settings.get('extra-index-url', '')} {self.index}".strip()
        named = {key: variable for key, variable, _ in run_uv.UV_VARIABLES}
        return {
            **{named[key]: value for key, value in settings.items() if key in named},
            **{f"PIP_{key.upper().replace('-', '_')}": value for key, value in settings.items()},
            "UV_INDEX_STRATEGY": "unsafe-best-match",
            "HOME": str(self.home),
            "PATH": f"{self.home}/.local/bin:{self.home}/bin",
            "TMPDIR": str(self.home / "tmp"),
            # Of a Python that was built for another folder, see `_python_for`.
            "LD_LIBRARY_PATH": ":".join(map(str, self.home.glob("python*/lib"))),
        }


@functools.cache
def _pip_settings() -> dict[str, str]:
    listing = subprocess.run([*run_uv.PIP, "config", "list"], capture_output=True, text=True)
    return dict(run_uv.read_pip_settings(listing.stdout))


def _is_root() -> bool:
    return os.geteuid() == 0


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with this commit's wheel and source distribution, served as an index."""
    made = tmp_path_factory.mktemp("index")
    (made / "torchyard").mkdir()
    _build(REPOSITORY, made / "torchyard")
    yield made


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(index: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(index))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def user(address: str) -> Iterator[User]:
    with _new_user(address) as made:
        yield made
        if (made.home / "venv").exists():
            made.run("venv/bin/yard", "server", "stop")


@contextmanager
def _new_user(address: str) -> Iterator[User]:
    # Not below pytest's own folder, which nobody else may enter.
    home = Path(tempfile.mkdtemp(prefix="tyt-"))
    try:
        programs = home / "bin"
        programs.mkdir()
        for program in Path("/usr/bin").iterdir():
            if not _LEFT_OUT.fullmatch(program.name):
                (programs / program.name).symlink_to(program)
        (home / "tmp").mkdir()
        if _is_root():
            for folder in (home, home / "tmp"):
                os.chown(folder, _NOBODY, _NOBODY)
        yield User(home, address)
    finally:
        remove(home)


def _build(source: Path, target: Path) -> None:
    build = [sys.executable, "tools/run_uv.py", "build", "--quiet", "--out-dir", str(target)]
    subprocess.run([*build, str(source)], cwd=REPOSITORY, check=True)


def _python_for(user: User, version: str) -> Path:
    """A Python that this user may run: the machine's own may lie where only root can go."""
    found = Path(other_pythons.python(version)).resolve()
    copy = user.home / f"python{version}"
    linked = ["cp", "-al", str(found.parents[1]), str(copy)]
    if subprocess.run(linked, capture_output=True).returncode:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(found.parents[1], copy, symlinks=True)
    return copy / "bin" / found.name


def test_the_demo_and_a_project_of_ones_own(user: User) -> None:
    python = _python_for(user, other_pythons.CURRENT)
    user.run(python, "-m", "venv", "venv")
    user.run("venv/bin/pip", "install", "--only-binary", ":all:", "torchyard")
    yard = user.home / "venv/bin/yard"
    (user.home / "bin/yard").symlink_to(yard)
    demo, _, updated = (user.run("bash", "-ec", line) for line in lines("docs/guides/install.md"))
    assert "is the newest" in updated
    assert float(re.findall(r"Test accuracy ([\d.]+)", demo)[-1]) >= 0.95
    trained = user.run(yard, "job", "create", "-f", "job.yml", "--stream", cwd="project")
    assert "Status:  Completed" in trained
    user.run(yard, "job", "download", "-n", "@last", "--path", "outputs/model.pt", cwd="project")
    assert list((user.home / "project").rglob("model.pt"))


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_each_python_installs_it_and_runs_a_job(user: User, version: str) -> None:
    user.run(_python_for(user, version), "-m", "venv", "venv")
    user.run("venv/bin/pip", "install", "--only-binary", ":all:", "torchyard")
    yard = user.home / "venv/bin/yard"
    assert torchyard.__version__ in user.run(yard, "--version")
    user.run(yard, "init", "--help")
    (user.home / "job.yml").write_text("{command: echo ran on $HOSTNAME, environment: python}")
    assert "Status:  Completed" in user.run(yard, "job", "create", "-f", "job.yml", "--stream")


def test_it_builds_from_the_source_distribution(user: User) -> None:
    user.run(_python_for(user, other_pythons.CURRENT), "-m", "venv", "venv")
    user.run("venv/bin/pip", "install", "--no-binary", "torchyard", "torchyard")
    assert torchyard.__version__ in user.run("venv/bin/torchyard", "--version")


_DEAD_INDEX = "http://127.0.0.1:9/simple"
_OFFLINE = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_INDEX_URL": _DEAD_INDEX,
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "PIP_RETRIES": "0",
    "UV_INDEX_URL": _DEAD_INDEX,
    "UV_EXTRA_INDEX_URL": "",
    "UV_FIND_LINKS": "",
    "UV_HTTP_RETRIES": "0",
}


@pytest.mark.parametrize("pip", ["20.3.4", "21.3"])
def test_an_old_pip_installs_it_and_finds_nothing_newer(user: User, pip: str) -> None:
    user.run(_python_for(user, "3.10"), "-m", "venv", "venv")
    user.run("venv/bin/python", "-m", "pip", "install", f"pip=={pip}")
    user.run("venv/bin/pip", "install", "torchyard")
    assert torchyard.__version__ in user.run("venv/bin/yard", "--version")
    assert "is the newest" in user.run("venv/bin/yard", "self", "update")


def test_without_a_network_nothing_is_installed_and_none_is_the_newest(user: User) -> None:
    python = _python_for(user, other_pythons.CURRENT)
    user.run(python, "-m", "venv", "venv")
    user.run("venv/bin/pip", "install", "torchyard", expect=1, **_OFFLINE)
    assert not (user.home / "venv/bin/yard").exists()
    user.run("venv/bin/pip", "install", "torchyard")
    printed = user.run("venv/bin/yard", "self", "update", expect=1, **_OFFLINE)
    assert "is the newest" not in printed
    assert f"pip reached no index that has torchyard; {torchyard.__version__} stays" in printed
    assert "check the network" in printed
    (user.home / "bin/uv").symlink_to(user.home / "venv/bin/uv")
    user.run("uv", "tool", "install", "--python", python, "torchyard")
    yard = user.home / ".local/bin/yard"
    # uv remembers the indexes of the installation.
    receipt = next(user.home.rglob("uv-receipt.toml"))
    receipt.write_text(receipt.read_text().partition("[tool.options]")[0])
    printed = user.run(yard, "self", "update", expect=2, **_OFFLINE)
    assert "torchyard was not updated" in printed
    assert "uv tool upgrade --reinstall torchyard`" in printed
    assert torchyard.__version__ in user.run(yard, "--version")


def test_an_update_that_fails_leaves_what_was_there(user: User, index: Path) -> None:
    user.run(_python_for(user, other_pythons.CURRENT), "-m", "venv", "venv")
    user.run("venv/bin/pip", "install", "torchyard")
    broken = index / f"torchyard/torchyard-{_NEXT}-py3-none-any.whl"
    broken.write_bytes(b"no zip")
    try:
        printed = user.run("venv/bin/yard", "self", "update", expect=2)
    finally:
        broken.unlink()
    assert "torchyard was not updated: the command above ended with " in printed
    assert "-m pip install --force-reinstall torchyard`" in printed
    assert torchyard.__version__ in user.run("venv/bin/yard", "--version")


@pytest.mark.skipif(not _is_root(), reason="mounting a small file system needs root")
def test_a_full_disk_leaves_no_half_of_it(user: User) -> None:
    venv = user.home / "venv"
    venv.mkdir()
    small = ["mount", "-t", "tmpfs", "-o", "size=60m,mode=777", "tmpfs", str(venv)]
    if subprocess.run(small, capture_output=True).returncode:
        pytest.skip("mounting a file system is not possible here")
    try:
        user.run(_python_for(user, other_pythons.CURRENT), "-m", "venv", "venv")
        assert "No space left" in user.run("venv/bin/pip", "install", "torchyard", expect=1)
        assert not (venv / "bin/yard").exists()
        subprocess.run(["mount", "-o", "remount,size=300m", str(venv)], check=True)
        user.run("venv/bin/pip", "install", "torchyard")
        printed = user.run("venv/bin/yard", "self", "update", expect=1)
        assert f"MB are free in `{venv}`" in printed and "free 200 MB" in printed
        assert torchyard.__version__ in user.run("venv/bin/yard", "--version")
    finally:
        subprocess.run(["umount", "--lazy", str(venv)], check=True)
        venv.rmdir()


def test_uv_runs_installs_and_updates_it(user: User, index: Path, tmp_path: Path) -> None:
    python = _python_for(user, other_pythons.CURRENT)
    user.run(python, "-m", "venv", "uv")
    user.run("uv/bin/pip", "install", "uv")
    uv, choice = user.home / "uv/bin/uv", ("--python", python)
    (user.home / "bin/uv").symlink_to(uv)
    assert torchyard.__version__ in user.run(f"{uv}x", *choice, "torchyard", "--version")
    assert "uvx torchyard@latest" in user.run(
        f"{uv}x", *choice, "torchyard", "self", "update", "--dry-run", expect=2
    )
    user.run(uv, "tool", "install", *choice, "torchyard")
    user.run(python, "-m", "venv", "by-pip")
    user.run("by-pip/bin/pip", "install", "torchyard")
    assert "is the newest" in user.run("by-pip/bin/yard", "self", "update")
    newer = tmp_path / "newer"
    shutil.copytree(REPOSITORY, newer, ignore=_sources_alone)
    module = newer / "src/torchyard/__init__.py"
    module.write_text(module.read_text().replace(f'"{torchyard.__version__}"', f'"{_NEXT}"'))
    _build(newer, index / "torchyard")
    change = f"torchyard {torchyard.__version__} -> {_NEXT}"
    for yard in (".local/bin/yard", "by-pip/bin/yard"):
        assert change in user.run(user.home / yard, "self", "update")
        assert _NEXT in user.run(user.home / yard, "--version")


def _sources_alone(folder: str, names: list[str]) -> list[str]:
    top = {"src", "compat", "examples", "pyproject.toml", "README.md", "LICENSE"}
    unwanted = [name for name in names if name == "__pycache__"]
    if Path(folder) == REPOSITORY:
        unwanted += [name for name in names if name not in top]
    return unwanted
