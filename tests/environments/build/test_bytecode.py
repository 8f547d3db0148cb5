"""Compiled modules are shared between environments, and never hide a changed source."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.environments.build import bytecode_program

_PROGRAM = str(Path(bytecode_program.__file__))
_FAILING = "def fail():\n    raise ValueError('deep')\n"


def compile_modules(site_packages: Path, cache: Path, *more: str) -> str:
    words = [sys.executable, "-I", "-S", "-B", _PROGRAM, str(site_packages), str(cache), *more]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return done.stderr


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


def test_environments_share_the_module_of_one_source(tmp_path: Path) -> None:
    first, other = put(tmp_path / "one"), put(tmp_path / "other")
    output = compile_modules(tmp_path / "one", tmp_path / "cache")
    assert "of 1 modules: 1 compiled" in output
    output = compile_modules(tmp_path / "other", tmp_path / "cache")
    assert "of 1 modules: 0 compiled" in output
    assert first.samefile(other) and first.stat().st_nlink == 3


def test_a_shared_module_is_used_and_names_its_own_file(tmp_path: Path) -> None:
    put(tmp_path / "one")
    put(tmp_path / "other")
    for name in ("one", "other"):
        compile_modules(tmp_path / name, tmp_path / "cache")
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
        compile_modules(tmp_path / name, tmp_path / "cache")
    before = first.read_bytes()
    (tmp_path / "other" / "alpha" / "__init__.py").write_text("print('changed')\n")
    assert "changed" in imported(tmp_path / "other", "import alpha")
    assert first.read_bytes() == before and other.read_bytes() != before


def test_copies_where_jobs_could_write_into_the_cache(tmp_path: Path) -> None:
    compiled = put(tmp_path / "one")
    compile_modules(tmp_path / "one", tmp_path / "cache", "--copy")
    assert compiled.stat().st_nlink == 1


def test_a_module_that_cannot_be_compiled_stays_as_it_is(tmp_path: Path) -> None:
    compiled = put(tmp_path / "one", "print 'for Python 2'\n")
    assert "0 modules" in compile_modules(tmp_path / "one", tmp_path / "cache")
    assert not compiled.exists()


def test_a_disk_error_is_named(tmp_path: Path) -> None:
    put(tmp_path / "one")
    (tmp_path / "cache").write_text("not a folder")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        compile_modules(tmp_path / "one", tmp_path / "cache")
    assert "File exists" in failed.value.stderr or "Not a directory" in failed.value.stderr
