"""Ignore rules, with git itself as the judge where it is installed."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.client.snapshots import ignore_rules
from torchyard.client.snapshots.ignore_rules import IgnoreRules
from torchyard.client.snapshots.walk import Limits, walk


def kept(folder: Path, rules: IgnoreRules) -> list[str]:
    return [path for path, *_ in walk(folder, rules, Limits())]


@pytest.mark.parametrize(
    ("lines", "path", "is_folder", "excluded"),
    [
        (["*.log"], "a/b.log", False, True),
        (["*.log", "!keep.log"], "a/keep.log", False, False),
        (["!keep.log", "*.log"], "keep.log", False, True),
        (["/a.txt"], "b/a.txt", False, False),
        (["/a.txt"], "a.txt", False, True),
        (["data/"], "data", False, False),
        (["data/"], "x/data", True, True),
        (["a/b"], "x/a/b", False, False),
        (["**/a/b"], "x/y/a/b", False, True),
        (["**/a/b"], "a/b", False, True),
        (["a/**"], "a", True, False),
        (["a/**"], "a/x/y", False, True),
        (["a/**/b"], "a/b", False, True),
        (["a/**/b"], "a/x/y/b", False, True),
        (["/**"], "a/b", False, True),
        (["a**b"], "a/b", False, False),
        (["a?c"], "a/c", False, False),
        (["[ab].py"], "b.py", False, True),
        (["[!ab].py"], "b.py", False, False),
        (["[^ab].py"], "c.py", False, True),
        (["[a-c]"], "b", False, True),
        (["[]x]"], "]", False, True),
        (["[a"], "[a", False, False),
        (["\\#x"], "#x", False, True),
        (["#x"], "#x", False, False),
        (["\\!x"], "!x", False, True),
        (["x  "], "x", False, True),
        (["x\\ "], "x ", False, True),
        (["x\r"], "x", False, True),
        (["\\*"], "x", False, False),
        (["x\\"], "x", False, False),
        (["", "/", "!"], "x", False, False),
        ([".*"], ".env", False, True),
        ([], ".git", True, True),
        ([], "a/__pycache__", True, True),
        (["!__pycache__/"], "a/__pycache__", True, False),
        (["a.b+c(d)"], "a.b+c(d)", False, True),
        (["*"], "ünï", False, True),
    ],
)
def test_rules(lines: list[str], path: str, is_folder: bool, excluded: bool) -> None:
    name = path.rsplit("/", 1)[-1]
    assert IgnoreRules(lines).excludes(path, name, is_folder) is excluded


def test_amlignore_wins_over_gitignore_and_never_both(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    (tmp_path / ".gitignore").write_text("a\n")
    assert kept(tmp_path, ignore_rules.read(tmp_path)) == [".gitignore", "b"]
    (tmp_path / ".amlignore").write_text("\ufeffb\n")
    assert kept(tmp_path, ignore_rules.read(tmp_path)) == [".amlignore", ".gitignore", "a"]
    (tmp_path / ".amlignore").write_text("")
    assert "b" in kept(tmp_path, ignore_rules.read(tmp_path))


def test_an_ignore_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / ".amlignore").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="can't be read"):
        ignore_rules.read(tmp_path)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("seed", range(12))
def test_as_git_reads_them(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = ["a", "b", "ab", "a.py", "b.py", "x.log", "[a]", "a b", "#x", "!x", "-", "]"]
    folders = ["a", "ab", "src", "b.py"]
    for _ in range(60):
        parts = [chance.choice(folders) for _ in range(chance.randrange(4))]
        file = tmp_path.joinpath(*parts, chance.choice(names))
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        except OSError:
            continue  # a file stands where the folder should
    pieces = ["a", "b", "ab", "src", "*", "**", "?", "[ab]", "[!a]", "[a-z]", "*.py", "a*", "\\#x"]
    lines = []
    for _ in range(8):
        line = "/".join(chance.choice(pieces) for _ in range(chance.choice([1, 1, 2, 3])))
        line = chance.choice(["", "", "", "/"]) + line + chance.choice(["", "", "/", "/**"])
        lines.append(chance.choice(["", "", "!"]) + line)
    (tmp_path / ".gitignore").write_text("\n".join(lines) + "\n")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(tmp_path)}
    for command in (
        ["init", "-q"],
        ["-c", "core.quotePath=off", "ls-files", "-oz", "--exclude-standard"],
    ):
        ran = subprocess.run(
            ["git", *command], cwd=tmp_path, env=environment, capture_output=True, check=True
        )
    wanted = sorted(name for name in ran.stdout.decode().split("\0") if name)
    assert kept(tmp_path, ignore_rules.read(tmp_path)) == wanted, lines
