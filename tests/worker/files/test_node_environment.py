"""Environments that nodes fetch: whole, once, and nothing but them."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from torchyard.base import files
from torchyard.environments.build import transport
from torchyard.shared.connection import Refused
from torchyard.shared.environment_mark import mark_of
from torchyard.shared.failures import Failure
from torchyard.shared.plan import ImagePlan, LaunchPlan
from torchyard.worker.files import node_environment
from torchyard.worker.files.node_cache import NodeCache


class FakeLink:
    """Answers as the server's routes do, from folders of this machine."""

    def __init__(self, environment: Path, target: Path) -> None:
        self.environment = environment
        self.kept = target
        self.sent_bytes = 0
        self.lists: dict[str, dict[str, Any]] = {}
        self.cut_after: list[int] = []
        self.damaged = 0
        self.killed_after = -1

    def download(self, path: str, write: Callable[[bytes], object]) -> None:
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        files = transport.file_list(self.environment, query["part"], self.kept)
        if query["part"] in self.lists:
            content = gzip.compress(json.dumps(self.lists[query["part"]]).encode(), mtime=0)
            files = transport.FileList(files.root, content, files.kept)
        if parts.path == "/environment":
            write(files.content)
            return
        if query["of"] != files.sha256:
            raise Refused(409, {"error": {"code": "environment_changed", "message": "changed"}})
        limit = self.cut_after.pop(0) if self.cut_after else -1
        for block in transport.read_from(files, int(query["offset"]), query.get("only", "")):
            if 0 <= limit < len(block):
                write(block[:limit])
                self.sent_bytes += limit
                raise OSError("response cut off")
            limit -= len(block)
            if 0 <= self.killed_after < self.sent_bytes:
                raise KeyboardInterrupt
            if self.damaged:
                self.damaged -= 1
                block = b"\0" * len(block)
            self.sent_bytes += len(block)
            write(block)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python at a place of its own, as one that uv has downloaded; a few files stand for all."""
    real = Path(sys.executable).resolve()
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    prefix = tmp_path / "server-pythons" / "3"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / f"python{version}" / "test").mkdir(parents=True)
    (prefix / "lib" / f"python{version}" / "os.py").write_text("# os\n")
    (prefix / "lib" / f"python{version}" / "test" / "large.py").write_text("# not needed\n")
    # What runs in its place finds this machine's own library.
    program = prefix / "bin" / f"python{version}"
    program.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def environment(tmp_path: Path, python: Path) -> Path:
    folder = tmp_path / "server" / "abc123"
    packages = folder / "lib" / python.name / "site-packages"
    (packages / "package" / "empty").mkdir(parents=True)
    (packages / "package" / "__init__.py").write_text("value = 1\n")
    (packages / "package" / "nothing.txt").touch()
    (packages / "package" / "large.bin").write_bytes(os.urandom(3 << 20))
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(python)
    (folder / "bin" / "python3").symlink_to("python")
    (folder / "lib64").symlink_to("lib")
    script = folder / "bin" / "tool"
    script.write_text(f"#!{folder}/bin/python\nprint('tool')\n")
    script.chmod(0o555)
    (folder / "pyvenv.cfg").write_text(f"home = {python.parent}\nversion_info = 3\n")
    (packages / "package").chmod(0o555)
    return folder


@pytest.fixture
def link(environment: Path, tmp_path: Path) -> FakeLink:
    return FakeLink(environment, tmp_path / "kept")


@pytest.fixture
def cache(tmp_path: Path) -> NodeCache:
    return NodeCache(tmp_path / "node", 1 << 30)


def plan_of(environment: Path) -> LaunchPlan:
    plan: dict[str, Any] = {
        "attempt_id": "a1", "attempt": 1, "job": "j", "workspace": "w", "experiment": "e",
        "command": "true", "server_url": "http://server", "report_token": "", "run_token": "",
        "scratch": "", "environment": str(environment), "environment_hash": "abc123",
        "environment_mark": mark_of(environment),
    }  # fmt: skip
    return LaunchPlan(**plan)


def bring(plan: LaunchPlan, link: FakeLink, cache: NodeCache, in_place: bool = False) -> Path:
    brought = node_environment.bring(
        plan,
        link,  # type: ignore[arg-type]
        cache,
        lambda: False,
        lambda _: None,
        in_place=in_place,
    )
    return Path(brought.environment)


def test_the_same_folder_is_used_where_the_node_sees_it(
    environment: Path, link: FakeLink, cache: NodeCache
) -> None:
    plan = plan_of(environment)
    assert bring(plan, link, cache, in_place=True) == environment
    assert link.sent_bytes == 0
    # Another machine may have a folder of the same name, of a build of its own.
    os.utime(environment / "pyvenv.cfg", (1, 1))
    assert bring(plan, link, cache, in_place=True) != environment


def test_a_file_that_changed_since_it_was_listed_is_listed_and_fetched_anew(
    environment: Path, link: FakeLink, cache: NodeCache
) -> None:
    """Such as a module that a job has written beside its source, where jobs may."""
    before = transport.file_list(environment, "environment", link.kept)
    [package] = environment.glob("lib/python*/site-packages/package")
    (package / "__init__.py").write_text("value = 2\n")  # as long as before
    brought = bring(plan_of(environment), link, cache)
    [source] = brought.glob("lib/python*/site-packages/package/__init__.py")
    assert source.read_text() == "value = 2\n"
    assert transport.file_list(environment, "environment", link.kept).sha256 != before.sha256


def test_a_draft_of_a_module_is_not_listed(environment: Path, link: FakeLink) -> None:
    [package] = environment.glob("lib/python*/site-packages/package")
    package.chmod(0o755)
    (package / "__pycache__").mkdir()
    for name in (".a.cpython-311.pyc.12", "a.cpython-311.pyc"):
        (package / "__pycache__" / name).write_bytes(b"module")
    listed = transport.file_list(environment, "environment", link.kept)
    paths = [path for path, *_ in json.loads(gzip.decompress(listed.content))["files"]]
    compiled = [os.path.basename(path) for path in paths if "__pycache__" in path]
    assert compiled == ["a.cpython-311.pyc"]


@pytest.mark.parametrize("kind", ["link", "pipe", "larger"])
def test_a_known_file_that_was_exchanged_is_fetched(
    environment: Path, link: FakeLink, cache: NodeCache, second: Path, tmp_path: Path, kind: str
) -> None:
    first = bring(plan_of(environment), link, cache)
    [package] = first.glob("lib/python*/site-packages/package")
    package.chmod(0o755)
    known = package / "large.bin"
    content = known.read_bytes()
    if kind == "larger":
        known.chmod(0o644)
        known.write_bytes(content + bytes(100))
    else:
        known.unlink()
        if kind == "pipe":
            os.mkfifo(known)
        else:
            (tmp_path / "elsewhere").write_bytes(content)
            known.symlink_to(tmp_path / "elsewhere")
    folder, sent_bytes = bring_second(second, tmp_path, cache)
    [copy] = folder.glob("lib/python*/site-packages/package/large.bin")
    assert copy.read_bytes() == content and sent_bytes > len(content)


@pytest.fixture
def second(environment: Path, tmp_path: Path) -> Path:
    """Another environment, with most of the first one's files and one of its own."""
    folder = tmp_path / "server" / "def456"
    shutil.copytree(environment, folder, symlinks=True)
    packages = next((folder / "lib").glob("python*")) / "site-packages" / "package"
    packages.chmod(0o755)
    (packages / "own.bin").write_bytes(os.urandom(100_000))
    (packages / "__init__.py").write_text("value = 2\n")
    packages.chmod(0o555)
    return folder


def bring_second(second: Path, tmp_path: Path, cache: NodeCache, **faults: Any) -> tuple[Path, int]:
    link = FakeLink(second, tmp_path / "kept")
    vars(link).update(faults)
    folder = bring(replace(plan_of(second), environment_hash="def456"), link, cache)
    return folder, link.sent_bytes


def test_a_second_environment_brings_only_the_files_that_the_first_one_lacks(
    environment: Path, link: FakeLink, cache: NodeCache, second: Path, tmp_path: Path
) -> None:
    first = bring(plan_of(environment), link, cache)
    folder, sent_bytes = bring_second(second, tmp_path, cache)
    assert 100_000 < sent_bytes < 102_000
    for file in sorted(second.rglob("*")):
        path = file.relative_to(second)
        if file.is_file() and path.parts[0] == "lib":
            copy = folder / path
            assert copy.read_bytes() == file.read_bytes()
            assert copy.stat().st_mode == file.stat().st_mode
            assert copy.stat().st_mtime_ns == file.stat().st_mtime_ns
            assert copy.stat().st_nlink == 1  # a job that writes to it changes no other one
    assert (first / "bin" / "tool").read_text() != (folder / "bin" / "tool").read_text()


def test_a_file_that_was_changed_on_the_node_is_fetched(
    environment: Path, link: FakeLink, cache: NodeCache, second: Path, tmp_path: Path
) -> None:
    first = bring(plan_of(environment), link, cache)
    (large,) = first.glob("lib/python*/site-packages/package/large.bin")
    stat = large.stat()
    large.write_bytes(b"\1" * stat.st_size)
    os.utime(large, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    folder, sent_bytes = bring_second(second, tmp_path, cache)
    assert sent_bytes > 3 << 20
    (copy,) = folder.glob("lib/python*/site-packages/package/large.bin")
    (original,) = second.glob("lib/python*/site-packages/package/large.bin")
    assert copy.read_bytes() == original.read_bytes()


def test_a_cut_connection_goes_on_where_it_ended_among_the_files_that_are_missing(
    environment: Path, link: FakeLink, cache: NodeCache, second: Path, tmp_path: Path
) -> None:
    bring(plan_of(environment), link, cache)
    folder, sent_bytes = bring_second(second, tmp_path, cache, cut_after=[10, 40_000])
    assert 100_000 < sent_bytes < 102_000
    (copy,) = folder.glob("lib/python*/site-packages/package/own.bin")
    (original,) = second.glob("lib/python*/site-packages/package/own.bin")
    assert copy.read_bytes() == original.read_bytes()


@pytest.mark.parametrize(
    "content", [b"", b"0" * 64, gzip.compress(b"[1]", mtime=0), b"\x1f\x8b\x08"]
)
def test_a_first_environment_whose_list_can_not_be_read_is_left_out(
    environment: Path,
    link: FakeLink,
    cache: NodeCache,
    second: Path,
    tmp_path: Path,
    content: bytes,
) -> None:
    first = bring(plan_of(environment), link, cache)
    (first.parent / "list").write_bytes(content)
    _, sent_bytes = bring_second(second, tmp_path, cache)
    assert sent_bytes > 3 << 20


def test_the_copy_equals_the_folder_but_for_the_paths_of_this_node(
    environment: Path, link: FakeLink, cache: NodeCache, python: Path
) -> None:
    folder = bring(plan_of(environment), link, cache)
    packages = folder / "lib" / python.name / "site-packages" / "package"
    origin = environment / "lib" / python.name / "site-packages" / "package"
    for name in ("__init__.py", "large.bin", "nothing.txt"):
        assert (packages / name).read_bytes() == (origin / name).read_bytes()
        assert (packages / name).stat().st_mtime_ns == (origin / name).stat().st_mtime_ns
        assert (packages / name).stat().st_mode == (origin / name).stat().st_mode
    assert (packages / "empty").is_dir()
    assert packages.stat().st_mode & 0o777 == 0o555
    assert os.readlink(folder / "lib64") == "lib"
    assert os.readlink(folder / "bin" / "python3") == "python"
    # This machine has the very Python of the environment.
    assert os.readlink(folder / "bin" / "python") == str(python)
    first_line = (folder / "bin" / "tool").read_text().splitlines()[0]
    assert first_line == f"#!{folder}/bin/python"
    assert (folder / "bin" / "tool").stat().st_mode & 0o777 == 0o555


def test_a_python_that_the_node_lacks_comes_too(
    environment: Path, link: FakeLink, cache: NodeCache, python: Path
) -> None:
    listed = transport.file_list(environment, "environment", link.kept)
    body = json.loads(gzip.decompress(listed.content))
    # As on a node where another build of Python is at that path.
    body["python"]["sha256"] = "0" * 64
    link.lists["environment"] = body
    folder = bring(plan_of(environment), link, cache)
    program = Path(os.readlink(folder / "bin" / "python"))
    assert program.is_relative_to(cache.folder("pythons"))
    assert f"home = {program.parent}" in (folder / "pyvenv.cfg").read_text().splitlines()
    assert (program.parent.parent / "lib" / python.name / "os.py").exists()
    assert not (program.parent.parent / "lib" / python.name / "test").exists()
    ran = subprocess.run([folder / "bin" / "python3", "-c", "print(7)"], capture_output=True)
    assert ran.stdout == b"7\n"


def test_a_cut_connection_goes_on_where_it_ended(
    environment: Path, link: FakeLink, cache: NodeCache
) -> None:
    link.cut_after = [100, 1 << 20, 5]
    bring(plan_of(environment), link, cache)
    listed = transport.file_list(environment, "environment", link.kept)
    size = json.loads(gzip.decompress(listed.content))["size_bytes"]
    assert link.sent_bytes == size


def test_what_a_killed_worker_left_is_continued(
    environment: Path, link: FakeLink, cache: NodeCache
) -> None:
    link.killed_after = 2 << 20
    with pytest.raises(KeyboardInterrupt):
        bring(plan_of(environment), link, cache)
    link.killed_after = -1
    before = link.sent_bytes
    assert not list(cache.folder("environments").glob("abc*")), "half an environment was used"
    bring(plan_of(environment), link, cache)
    listed = transport.file_list(environment, "environment", link.kept)
    size = json.loads(gzip.decompress(listed.content))["size_bytes"]
    assert before and link.sent_bytes == size


def test_a_damaged_file_is_fetched_again_and_at_last_named(
    environment: Path, link: FakeLink, cache: NodeCache
) -> None:
    link.damaged = 1
    folder = bring(plan_of(environment), link, cache)
    assert (folder / "pyvenv.cfg").read_text().startswith("home")
    assert files.remove(cache.folder("environments"))
    link.damaged = 10**6
    with pytest.raises(Failure, match="arrives damaged"):
        bring(plan_of(environment), link, cache)


def _file(path: str, content: bytes = b"evil") -> list[Any]:
    return [path, 0o644, len(content), 1, hashlib.sha256(content).hexdigest()]


@pytest.mark.parametrize(
    "change",
    [
        {"files": [_file("../../evil")]},
        {"files": [_file("/evil")]},
        {"files": [_file("bin/../../../evil")]},
        {"files": [_file("")]},
        {"folders": [["../evil", 0o755]]},
        {"folders": [["/evil", 0o755]]},
        {"links": [["../evil", "x"]]},
        {"links": [["lib/out", "../../../etc"]]},
        {"links": [["lib/out", "/etc/passwd"]]},
        {"links": [["bin/python-config", "/etc/passwd"], ["pyvenv.cfg", "/etc"]]},
    ],
)
def test_a_list_that_leads_out_is_refused(
    environment: Path,
    link: FakeLink,
    cache: NodeCache,
    tmp_path: Path,
    change: dict[str, list[list[Any]]],
) -> None:
    listed = transport.file_list(environment, "environment", link.kept)
    body = json.loads(gzip.decompress(listed.content))
    for name, entries in change.items():
        # Alone, so that a file's bytes are not those of another.
        body[name] = entries if name == "files" else [*body[name], *entries]
    body["size_bytes"] = sum(entry[2] for entry in body["files"])
    link.lists["environment"] = body
    outside = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises((Failure, OSError)):
        node_environment.bring(
            plan_of(environment),
            link,  # type: ignore[arg-type]
            cache,
            _after(20),
            lambda _: None,
            in_place=False,
        )
    assert not list(tmp_path.rglob("evil")) and not Path("/evil").exists()
    assert sorted({*outside, "node"}) == sorted(path.name for path in tmp_path.iterdir())
    assert not list(cache.folder("environments").glob("abc*"))


def test_a_link_of_the_list_leads_no_file_out(
    environment: Path, link: FakeLink, cache: NodeCache, tmp_path: Path
) -> None:
    """Files come before links, so that none is written through one."""
    (environment / "lib" / "way").mkdir()
    (environment / "lib" / "way" / "evil").write_text("evil")
    listed = transport.file_list(environment, "environment", link.kept)
    body = json.loads(gzip.decompress(listed.content))
    body["folders"] = [entry for entry in body["folders"] if entry[0] != "lib/way"]
    body["links"].append(["lib/way", "../bin"])
    link.lists["environment"] = body
    with pytest.raises(Failure, match="leads out"):
        bring(plan_of(environment), link, cache)
    assert not list(cache.folder("environments").rglob("bin/evil"))


def test_packages_of_conda_are_at_the_path_of_the_server_or_named(
    environment: Path, link: FakeLink, cache: NodeCache, tmp_path: Path
) -> None:
    (environment / "conda-meta").mkdir()
    plan = plan_of(environment)
    moved = environment.with_name("moved")
    link.environment = environment.rename(moved).rename(tmp_path / "abc123")
    folder = bring(plan, link, cache)
    assert folder == environment and folder.is_symlink()
    assert (folder / "conda-meta").is_dir()
    with pytest.raises(Failure, match="packages of conda, which must be at"):
        bring(replace(plan, environment="/proc/no/abc123"), link, cache)


def test_an_image_that_the_node_does_not_see_is_named(
    environment: Path, link: FakeLink, cache: NodeCache
) -> None:
    plan = replace(plan_of(environment), environment="", image=ImagePlan("/nowhere/rootfs"))
    with pytest.raises(Failure, match="does not see `/nowhere/rootfs`"):
        bring(plan, link, cache)


def _after(count: int) -> Callable[[], bool]:
    numbers = iter(range(count))
    return lambda: next(numbers, None) is None
