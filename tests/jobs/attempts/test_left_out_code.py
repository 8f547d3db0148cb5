"""A module that an ignore file left out of a job's code is told as that."""

from __future__ import annotations

import json

import pytest

from torchyard.jobs.attempts import left_out_code
from torchyard.jobs.records.types import JobError

LEFT_OUT = {
    "lib/": ".gitignore:7",
    "pkg/data/": ".gitignore:9",
    "src/extra.py": ".amlignore:1",
    "tools/run/": ".amlignore:2",
    "tests/yaml.py": ".amlignore:3",
    "corpus/": ".gitignore:4",
    "conf/base.yaml": ".gitignore:5",
}
PROPERTIES = {"torchyard.left_out": json.dumps(LEFT_OUT)}


def hint(code: str, message: str, file: str = "train.py", **properties: str) -> str:
    error = JobError(code, message, "install it", {"frames": [{"file": file, "line": 3}]})
    return left_out_code.explained(error, {**PROPERTIES, **properties}).hint


@pytest.mark.parametrize(
    ("code", "message", "file", "path", "rule"),
    [
        ("import_failed", "ModuleNotFoundError: No module named 'lib'", "a.py", "lib/", (7, "git")),
        ("import_failed", "No module named 'pkg.data'", "a.py", "pkg/data/", (9, "git")),
        ("import_failed", "No module named 'data'", "pkg/a.py", "pkg/data/", (9, "git")),
        (
            "import_failed",
            "ImportError: cannot import name 'data' from 'pkg' (/w/pkg/__init__.py)",
            "train.py",
            "pkg/data/",
            (9, "git"),
        ),
        ("import_failed", "python: No module named extra", "a.py", "src/extra.py", (1, "aml")),
        ("import_failed", "No module named 'lib.nets'", "a.py", "lib/", (7, "git")),
        (
            "file_missing",
            "FileNotFoundError: [Errno 2] No such file or directory: 'corpus/raw/train.csv'",
            "a.py",
            "corpus/",
            (4, "git"),
        ),
        (
            "file_missing",
            "FileNotFoundError: [Errno 2] No such file or directory: '/n/work/conf/base.yaml'",
            "a.py",
            "conf/base.yaml",
            (5, "git"),
        ),
        (
            "file_missing",
            "FileNotFoundError: [Errno 2] No such file or directory: 'corpus/work/a.csv'",
            "a.py",
            "corpus/",
            (4, "git"),
        ),
        (
            "file_missing",
            "cp: cannot stat './conf/base.yaml': No such file or directory",
            "a.py",
            "conf/base.yaml",
            (5, "git"),
        ),
        (
            "script_missing",
            "python: can't open file '/x/work/tools/run/main.py': [Errno 2] No such file",
            "a.py",
            "tools/run/",
            (2, "aml"),
        ),
    ],
)
def test_the_rule_is_named(
    code: str, message: str, file: str, path: str, rule: tuple[int, str]
) -> None:
    line, kind = rule
    or_input = ", or pass it as one of the job's `inputs`" if code == "file_missing" else ""
    assert hint(code, message, file) == (
        f"`{path}` lies in the job's code folder, but line {line} of `.{kind}ignore` leaves it "
        f"out: add `!/{path}` below that line{or_input}"
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import_failed", "No module named 'yaml'"),
        ("import_failed", "No module named 'li'"),
        ("import_failed", "No module named 'pkg'"),
        ("script_missing", "can't open file '/x/work/other.py'"),
        ("file_missing", "[Errno 2] No such file or directory: '/corpus/raw/train.csv'"),
        ("file_missing", "[Errno 2] No such file or directory: 'corp'"),
        ("exception", "ValueError: No module named 'lib'"),
    ],
)
def test_other_failures_keep_their_hint(code: str, message: str) -> None:
    assert hint(code, message) == "install it"


@pytest.mark.parametrize("written", ["", "{", "7", "[1, 2]", '{"lib/": null}'])
def test_a_property_that_someone_else_wrote_does_no_harm(written: str) -> None:
    explained = hint("import_failed", "No module named 'lib'", **{"torchyard.left_out": written})
    assert explained == "install it" or "lib/" in explained
