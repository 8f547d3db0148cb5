"""Compiled modules are shared between environments, and never hide a changed source."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchyard.environments.build import bytecode, bytecode_links, bytecode_program

_PYTHON = [sys.executable, "-I", "-S", "-B"]
_LINKS, _PROGRAM = str(bytecode_links.__file__), str(bytecode_program.__file__)
_FAILING = "def fail():\n    raise ValueError('deep')\n"


def request(site_packages: Path, store: Path | str, **more: Any) -> dict[str, Any]:
    names = {"packages": str(site_packages), "store": str(store)}
    tag = sys.implementation.cache_tag
    return {**names, "tag": tag, "may_link": True, "is_idle": True, **more}


def run(program: str, verb: str, asked: dict[str, Any], stdin: bytes = b"") -> bytes:
    file = Path(asked["packages"]).with_suffix(".json")
    file.write_text(json.dumps(asked))
    words = [*_PYTHON, program, *([verb] if verb else []), str(file)]
    return subprocess.run(words, check=True, capture_output=True, input=stdin).stdout


def lacking(asked: dict[str, Any]) -> list[list[str]]:
    sources: list[list[str]] = json.loads(run(_LINKS, "list", asked))
    return sources


def compile_modules(site_packages: Path, store: Path | str, **more: Any) -> int:
    """How many sources had no module before."""
    asked = request(site_packages, store, **more)
    asked["sources"] = lacking(asked)
    run(_LINKS, "take", asked, run(_PROGRAM, "", asked))
    return len(asked["sources"])


def put(site_packages: Path, source: str = _FAILING) -> Path:
    """A package `alpha` with that source; the place of its compiled module."""
    file = site_packages / "alpha" / "__init__.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return Path(importlib.util.cache_from_source(str(file)))


def imported(site_packages: Path, code: str) -> str:
    words = [
        sys.executable,
        "-I",
        "-S",
        "-v",
        "-c",
        f"import sys\nsys.path.insert(0, {str(site_packages)!r})\n{code}",
    ]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout + done.stderr


def frame(digest: str, content: bytes) -> bytes:
    return f"{digest} {len(content)} {hashlib.sha256(content).hexdigest()}\n".encode() + content


def module(body: bytes) -> bytes:
    return importlib.util.MAGIC_NUMBER + b"\x03\0\0\0" + bytes(8) + body


def kept(store: Path) -> dict[str, bytes]:
    """What the store has, by the digest of its source."""
    return {file.stem: file.read_bytes() for file in store.rglob("*") if file.is_file()}


def test_environments_share_the_module_of_one_source(tmp_path: Path) -> None:
    first, other = put(tmp_path / "one"), put(tmp_path / "other")
    assert compile_modules(tmp_path / "one", tmp_path / "store") == 1
    assert compile_modules(tmp_path / "other", tmp_path / "store") == 0
    assert first.samefile(other) and first.stat().st_nlink == 3


def test_a_shared_module_is_used_and_names_its_own_file(tmp_path: Path) -> None:
    for name in ("one", "other"):
        put(tmp_path / name)
        compile_modules(tmp_path / name, tmp_path / "store")
    output = imported(tmp_path / "other", "import alpha; alpha.fail()")
    assert (
        "matches" in output
        and f'File "{tmp_path}/other/alpha/__init__.py", line 2, in fail' in output
    )


def test_a_changed_source_is_noticed_and_the_other_environment_keeps_its_own(
    tmp_path: Path,
) -> None:
    first, other = put(tmp_path / "one"), put(tmp_path / "other")
    for name in ("one", "other"):
        compile_modules(tmp_path / name, tmp_path / "store")
    before = first.read_bytes()
    (tmp_path / "other" / "alpha" / "__init__.py").write_text("print('changed')\n")
    assert "changed" in imported(tmp_path / "other", "import alpha")
    assert first.read_bytes() == before and other.read_bytes() != before


def test_copies_where_jobs_could_write_into_the_store(tmp_path: Path) -> None:
    compiled = put(tmp_path / "one")
    compile_modules(tmp_path / "one", tmp_path / "store", may_link=False)
    assert compiled.stat().st_nlink == 1
    assert compile_modules(tmp_path / "one", tmp_path / "store", may_link=False) == 0


def test_modules_of_an_environment_alone_are_in_no_store(tmp_path: Path) -> None:
    compiled = put(tmp_path / "one")
    assert compile_modules(tmp_path / "one", "") == 1
    assert compiled.stat().st_nlink == 1 and "matches" in imported(tmp_path / "one", "import alpha")
    assert compile_modules(tmp_path / "one", "") == 0


def test_a_sealed_folder_stays_sealed_and_what_others_put_there_is_replaced(
    tmp_path: Path,
) -> None:
    compiled = put(tmp_path / "one")
    compiled.parent.mkdir()
    compiled.write_bytes(b"planted")
    folders = (compiled.parent, compiled.parent.parent)
    for folder in folders:
        folder.chmod(0o555)
    compile_modules(tmp_path / "one", tmp_path / "store")
    assert "matches" in imported(tmp_path / "one", "import alpha")
    assert [oct(path.stat().st_mode & 0o777) for path in (*folders, compiled)] == [
        "0o555", "0o555", "0o444"
    ]  # fmt: skip


def test_a_module_that_cannot_be_compiled_stays_as_it_is(tmp_path: Path) -> None:
    compiled = put(tmp_path / "one", "print 'for Python 2'\n")
    assert compile_modules(tmp_path / "one", tmp_path / "store") == 1
    assert not compiled.exists()


def test_what_jobs_import_first_is_compiled_first(tmp_path: Path) -> None:
    for name in ("apt/tests/deep.py", "apt/deep/mod.py", "apt/__init__.py", "torch/x.py", "b.py"):
        (tmp_path / "one" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "one" / name).write_text(f"NAME = {name!r}\n")
    sources = lacking(request(tmp_path / "one", tmp_path / "store", first=["torch", "b"]))
    order = [path.removeprefix(f"{tmp_path}/one/") for _, path in sources]
    assert order == [
        "torch/x.py",
        "b.py",
        "apt/__init__.py",
        "apt/deep/mod.py",
        "apt/tests/deep.py",
    ]


@pytest.mark.parametrize("fault", ["unasked", "huge", "unchecked", "short", "torn", "twice"])
def test_only_the_module_of_a_listed_source_is_taken(tmp_path: Path, fault: str) -> None:
    """What comes after a frame that is none is bytes of a module, which may hold any frame."""
    put(tmp_path / "one")
    (tmp_path / "one" / "other.py").write_text("OTHER = 1\n")
    asked = request(tmp_path / "one", tmp_path / "store")
    asked["sources"] = lacking(asked)
    digests = {Path(path).name: digest for digest, path in asked["sources"]}
    digest, other = digests["__init__.py"], digests["other.py"]
    good, forged = frame(other, module(b"x")), frame(other, module(b"forged"))
    frames = {
        "unasked": frame("0" * 64, module(b"x")),
        "huge": frame(digest, module(bytes(2 << 20))),
        "unchecked": frame(digest, importlib.util.MAGIC_NUMBER + bytes(12) + b"x"),
        "short": f"{digest} 900 {'0' * 64}\n".encode() + module(b""),
        "torn": frame(digest, module(bytes(900)))[:-400],
        "twice": frame(other, module(b"y")) + frame(other, module(b"x")),
    }
    said = b"waiting until another build has ended\n"
    run(_LINKS, "take", asked, said + frames[fault] + forged)
    assert kept(tmp_path / "store") in ({}, {other: module(b"y")}, {other: module(b"forged")})
    assert (module(b"forged") in kept(tmp_path / "store").values()) == (fault == "unchecked")
    run(_LINKS, "take", asked, b"words\n" + good)
    assert kept(tmp_path / "store")[other] == module(b"x")


def test_a_module_with_the_frame_of_another_in_it_gives_that_one_nothing(tmp_path: Path) -> None:
    """Whoever writes a source decides which bytes its module has."""
    put(tmp_path / "one")
    victim = hashlib.sha256((tmp_path / "one" / "alpha" / "__init__.py").read_bytes()).hexdigest()
    text = "\n" + frame(victim, module(b"forged")).decode("latin-1")
    (tmp_path / "one" / "attack.py").write_text(f"PAYLOAD = {text.encode('latin-1')!r}\n")
    compile_modules(tmp_path / "one", tmp_path / "store")
    stored = kept(tmp_path / "store")
    assert len(stored) == 2 and stored[victim].find(b"forged") < 0
    assert "deep" in imported(tmp_path / "one", "import alpha; alpha.fail()")


def test_a_source_in_two_places_is_compiled_once_and_linked_at_both(tmp_path: Path) -> None:
    first = put(tmp_path / "one")
    other = tmp_path / "one" / "beta.py"
    other.write_text(_FAILING)
    (tmp_path / "one" / "gamma.py").write_text("GAMMA = 1\n")
    assert compile_modules(tmp_path / "one", tmp_path / "store") == 3
    assert first.samefile(importlib.util.cache_from_source(str(other)))
    assert len(kept(tmp_path / "store")) == 2


def test_a_module_much_larger_than_its_source_is_left_to_jobs(tmp_path: Path) -> None:
    folded = "\n".join(f"X = '{number:04}' * 1000" for number in range(400))
    compiled = put(tmp_path / "one", f"{folded}\n")
    (tmp_path / "one" / "small.py").write_text("SMALL = 1\n")
    compile_modules(tmp_path / "one", tmp_path / "store")
    assert not compiled.exists() and len(kept(tmp_path / "store")) == 1


def test_a_removed_environment_ends_it_without_a_trace(tmp_path: Path) -> None:
    put(tmp_path / "one")
    asked = request(tmp_path / "one", tmp_path / "store")
    asked["sources"] = lacking(asked)
    compiled = run(_PROGRAM, "", asked)
    os.rename(tmp_path / "one", tmp_path / "removed")
    run(_LINKS, "take", asked, compiled)
    assert not (tmp_path / "one").exists()


def test_a_disk_error_is_named(tmp_path: Path) -> None:
    put(tmp_path / "one")
    (tmp_path / "store").write_text("not a folder")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        compile_modules(tmp_path / "one", tmp_path / "store")
    assert failed.value.returncode == errno.ENOTDIR


@pytest.mark.parametrize("is_strangers", [True, False])
def test_a_python_that_strangers_built_is_not_run_and_compiles_for_itself_alone(
    tmp_path: Path, is_strangers: bool
) -> None:
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    program = folder / "bin" / "python"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho cpython-311 a70d0d0a\n")
    program.chmod(0o755)
    modules = bytecode.find(folder, tmp_path / "store", is_strangers)
    assert modules is not None and modules.tag == "cpython-311"
    store = None if is_strangers else tmp_path / "store" / "cpython-311-a70d"
    assert (modules.store, (tmp_path / "ran").exists()) == (store, not is_strangers)


def test_the_python_that_compiles_is_the_real_one(tmp_path: Path) -> None:
    """Its `pyvenv.cfg` may name the library of another."""
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    packages = folder / f"lib/python3.{sys.version_info.minor}/site-packages"
    packages.mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text(f"home = {tmp_path}\n")
    modules = bytecode.find(folder, tmp_path / "store", is_strangers=True)
    assert modules is not None and modules.store is not None
    assert modules.program == Path(sys.executable).resolve() and modules.packages == packages
