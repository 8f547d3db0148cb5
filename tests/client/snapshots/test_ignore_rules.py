"""Ignore rules, with azure-ai-ml itself as the judge: see record_what_azure_sends.py."""

from __future__ import annotations

import json
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
    rules = IgnoreRules(lines)
    assert rules.excludes(rules.deciding(path, name, is_folder)) is excluded


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


CASES = json.loads(Path(__file__).with_name("what_azure_sends.json").read_text())


@pytest.mark.parametrize("number", range(len(CASES)))
def test_as_azure_ai_ml_reads_them(tmp_path: Path, number: int) -> None:
    lines, files, sent = (CASES[number][key] for key in ("lines", "files", "sent"))
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / ".amlignore").write_text("\n".join(lines) + "\n")
    assert kept(tmp_path, ignore_rules.read(tmp_path)) == sorted(sent), lines


def test_a_rule_that_includes_a_folder_means_no_caches(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "__pycache__").mkdir(parents=True)
    (tmp_path / "pkg" / "__pycache__" / "a.pyc").touch()
    (tmp_path / "pkg" / "a.py").touch()
    assert kept(tmp_path, IgnoreRules(["*", "!/pkg/"])) == ["pkg/a.py"]
    assert "pkg/__pycache__/a.pyc" in kept(tmp_path, IgnoreRules(["*", "!/pkg/", "!__pycache__/"]))


def test_an_excluded_folder_without_exceptions_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to("/nowhere")
    assert kept(tmp_path, IgnoreRules(["!a", "data/"])) == []
