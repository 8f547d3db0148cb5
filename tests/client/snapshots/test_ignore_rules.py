"""Ignore rules, with azure-ai-ml itself as the judge: see record_what_azure_sends.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ordinary_user import as_an_ordinary_user
from torchyard.base.errors import InvalidInput
from torchyard.client.snapshots import ignore_rules
from torchyard.client.snapshots.ignore_rules import IgnoreRules
from torchyard.client.snapshots.walk import Limits, walk


def included_paths(folder: Path, rules: IgnoreRules) -> list[str]:
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
        (["/**/"], "a", True, False),
        (["/**/**/"], "a", True, False),
        (["a/**/"], "a/x", False, True),
        (["**/**/"], "x", False, False),
        (["**/"], "a", True, True),
        (["a**b"], "a/b", False, False),
        (["a?c"], "a/c", False, False),
        (["[ab].py"], "b.py", False, True),
        (["[!ab].py"], "b.py", False, False),
        (["[^ab].py"], "c.py", False, False),
        (["[^ab].py"], "a.py", False, True),
        (["[^ab].py"], "^.py", False, True),
        (["[a-c]"], "b", False, True),
        (["[]x]"], "]", False, True),
        (["[a"], "[a", False, False),
        (["\\#x"], "#x", False, True),
        (["#x"], "#x", False, False),
        (["\\!x"], "!x", False, True),
        (["x  "], "x", False, True),
        (["x\\ "], "x ", False, True),
        (["x\r"], "x", False, True),
        (["  x\t"], "x", False, True),
        (["\t# x"], "# x", False, False),
        (["  !x"], "x", False, False),
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
    assert included_paths(tmp_path, ignore_rules.read(tmp_path)) == [".gitignore", "b"]
    (tmp_path / ".amlignore").write_text("\ufeffb\n")
    assert included_paths(tmp_path, ignore_rules.read(tmp_path)) == [
        ".amlignore",
        ".gitignore",
        "a",
    ]
    (tmp_path / ".amlignore").write_text("")
    assert "b" in included_paths(tmp_path, ignore_rules.read(tmp_path))


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
    for link, target in CASES[number].get("links", {}).items():
        (tmp_path / link).symlink_to(tmp_path / target)
    (tmp_path / ".amlignore").write_text("\n".join(lines) + "\n")
    assert included_paths(tmp_path, ignore_rules.read(tmp_path)) == sorted(sent), lines


def test_a_rule_that_includes_a_folder_means_no_caches(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "__pycache__").mkdir(parents=True)
    (tmp_path / "pkg" / "__pycache__" / "a.pyc").touch()
    (tmp_path / "pkg" / "a.py").touch()
    assert included_paths(tmp_path, IgnoreRules(["*", "!/pkg/"])) == ["pkg/a.py"]
    assert "pkg/__pycache__/a.pyc" in included_paths(
        tmp_path, IgnoreRules(["*", "!/pkg/", "!__pycache__/"])
    )


def test_caches_of_an_excluded_folder_stay_excluded(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "__pycache__").mkdir(parents=True)
    (tmp_path / "pkg" / "__pycache__" / "a.py").touch()
    (tmp_path / "a.py").touch()
    assert included_paths(tmp_path, IgnoreRules(["!*.py", "/*/"])) == ["a.py"]


def test_an_excluded_folder_that_cannot_be_read_is_passed_by() -> None:
    with as_an_ordinary_user() as folder:
        for name in ("data", "pkg"):
            (folder / name).mkdir()
            (folder / name / "a.py").touch()
        (folder / "data").chmod(0)
        try:
            assert included_paths(folder, IgnoreRules(["data/", "!/data/a.py"])) == ["pkg/a.py"]
            with pytest.raises(InvalidInput, match=r"`.*data` can't be read"):
                included_paths(folder, IgnoreRules(["*", "!/data/"]))
        finally:
            (folder / "data").chmod(0o700)


def test_links_in_a_folder_are_judged_by_where_they_lead(tmp_path: Path) -> None:
    for name in ("lib/a.py", "data/big.py", "src/main.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "src" / "lib").symlink_to(tmp_path / "lib")
    (tmp_path / "src" / "data").symlink_to("../data")
    assert included_paths(tmp_path, IgnoreRules(["/data/", "src/lib/"])) == [
        "lib/a.py", "src/lib/a.py", "src/main.py"
    ]  # fmt: skip
    # One that leads nowhere is left out by its own name.
    (tmp_path / "src" / "gone").symlink_to("/no/such")
    assert "src/gone" not in included_paths(tmp_path, IgnoreRules(["gone"]))
    with pytest.raises(InvalidInput, match="`src/gone` points to nothing"):
        included_paths(tmp_path, IgnoreRules())


def test_what_is_left_out_is_known_with_its_rule(tmp_path: Path) -> None:
    for name in (
        "lib/a.py",
        "lib/b/c.py",
        "data/big.bin",
        "a_test.py",
        "__pycache__/x.pyc",
        "m.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("# builds\nlib/\n\ndata\n*_test.py\n")
    left_out: dict[str, str] = {}
    walk(tmp_path, ignore_rules.read(tmp_path), Limits(), left_out)
    assert left_out == {
        "lib/": ".gitignore:2",
        "data/": ".gitignore:4",
        "a_test.py": ".gitignore:5",
    }
    (tmp_path / ".amlignore").write_text("*\n!m.py\n")
    left_out.clear()
    walk(tmp_path, ignore_rules.read(tmp_path), Limits(), left_out)
    assert left_out == dict.fromkeys(
        ["lib/", "lib/a.py", "lib/b/", "lib/b/c.py", "data/", "data/big.bin", "a_test.py"],
        ".amlignore:1",
    )


def test_an_excluded_folder_without_exceptions_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to("/nowhere")
    assert included_paths(tmp_path, IgnoreRules(["!a", "data/"])) == []
