"""What was asked wrongly: place, hint, exit code 2, and nothing uploaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.fake_server import FakeServer

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True)
)

DOCUMENTS = {
    "empty": (b"", "1:1: the file is empty", "hint:"),
    "only comments": (b"# nothing\n\n", "1:1: the file is empty", "hint:"),
    "list": (b"- a\n- b\n", "1:1: the document is not a mapping", "hint:"),
    "text": (b"just words", "1:1: the document is not a mapping", "hint:"),
    "unclosed quote": (b"command: 'python\ncode: .\n", "3:1: found unexpected end", "hint:"),
    "bad indentation": (b"command: x\n  code: .\n", "2:7: mapping values are not", "quotes"),
    "colon in text": (b"command: echo a: b\n", "1:16: mapping values are not", "quotes"),
    "tab": (b"command: x\nresources:\n\tinstance_count: 1\n", "3:1: a tab can't indent", "spaces"),
    "duplicate": (
        b"command: a\ncode: .\ncommand: b\n",
        "3:1: the key `command` is there twice, first at line 1",
        "one of the two",
    ),
    "duplicate below": (
        b"command: a\nresources:\n  instance_count: 1\n  instance_count: 2\n",
        "4:3: the key `instance_count` is there twice",
        "hint:",
    ),
    "undefined alias": (b"command: *.py\n", "1:11: ", "quotes"),
    "star": (b"command: *py\n", "1:10: found undefined alias", "quotes"),
    "percent": (b"command: %x\n", "1:10: found character", "quotes"),
    "alias bomb": (BOMB.encode(), ": the document's aliases stand for too many", "without them"),
    "circle": (b"command: &a [*a]\n", "1:10: an alias stands for something it is inside", ""),
    "deep": (b"command: " + b"[" * 5000 + b"]" * 5000, "1:", ""),
    "tag": (b"command: !!python/object:os.system x\n", "1:10: the tag", "remove"),
    "own tag": (b"command: !Secret x\n", "1:10: the tag `!Secret`", "remove"),
    "binary tag": (b"command: !!binary aGk=\n", "1:10: the tag", "remove"),
    "two documents": (b"command: a\n---\ncommand: b\n", "2:1: ", "one document"),
    "list as key": (b"? [a, b]\n: c\n", "1:3: a key is not a text", "hint:"),
    "not finite": (b"command: x\ninputs:\n  a: .nan\n", "3:6: `.nan` is no finite", "quotes"),
    "huge number": (b"command: 99999999999999999999999\n", "1:10: the number", "quotes"),
    "not UTF-8": (b"command: x\ndescription: caf\xe9\n", "2:17: the file is not text", "UTF-8"),
    "binary": (b"\x7fELF\x02\x01\x00\x00", "1:1: the file holds the control", "binary"),
    "zero byte": (b"command: a\x00b\n", "1:11: the file holds the control", "binary"),
    "too large": (b"#" * (10 << 20), "1:1: the file is larger than 1 MB", "hint:"),
    "merge of a text": (b"command: x\n<<: y\n", "2:5: `<<` takes a mapping", "hint:"),
    # Found by the server, placed by the command.
    "unknown key": (b"command: x\ncomand: y\n", "2:1: unknown key `comand`", "remove"),
    "unknown key below": (
        b"command: x\nenvironment: y\n\nresources:\n  # how many\n  instance_counts: 2\n",
        "6:3: unknown key `instance_counts`",
        "did you mean `instance_count`?",
    ),
    "missing key": (b"# a job\ndescription: x\n", "2:1: the key `command` is missing", ""),
    # Found here, in what the document names.
    "missing code": (b"command: x\ncode: ./nope\n", "2:1: the path `./nope` does not", "relative"),
    "missing input": (
        b"command: x\ninputs:\n  data:\n    type: uri_folder\n    path: nope\n",
        "5:5: the path `nope` does not exist",
        "relative",
    ),
    "file as folder": (
        b"command: x\ninputs:\n  data:\n    path: job.yml\n",
        "4:5: the input's path `job.yml` is a file",
        "uri_file",
    ),
    "folder as file": (
        b"command: x\ninputs:\n  data:\n    type: uri_file\n    path: .\n",
        "5:5: the input's path `.` is a folder",
        "uri_folder",
    ),
    "missing conda file": (
        b"command: x\nenvironment:\n  conda_file: conda.yml\n",
        "3:3: the path `conda.yml` does not exist",
        "relative",
    ),
    "broken conda file": (
        b"command: x\nenvironment:\n  conda_file: broken.yml\n",
        "3:3: `",
        "correct that file",
    ),
    "requirements of requirements": (
        b"command: x\nenvironment:\n  pip_requirements: nested.txt\n",
        "3:3: `",
        "into this file",
    ),
    "path too long": (b"command: x\ncode: " + b"a" * 5000 + b"\n", "2:1: the path", "hint:"),
    "link out": (b"command: x\ncode: links\n", "2:1: the link `out` points out of", "copy"),
    "broken link": (b"command: x\ncode: broken\n", "2:1: the link `gone` points to no", ""),
    "circle of links": (b"command: x\ncode: circle\n", "2:1: the link `a/up` points", "holds it"),
    "pipe": (b"command: x\ncode: pipe\n", "2:1: `fifo` is neither a file", "amlignore"),
    "name not UTF-8": (b"command: x\ncode: bytes\n", "2:1: the file name `caf\\xe9`", "rename"),
    "too many files": (b"command: x\ncode: many\n", "2:1: total snapshot size", "MAX_FILES"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the documents above name."""
    here = tmp_path_factory.mktemp("tree")
    (here / "broken.yml").write_text("a: [")
    (here / "nested.txt").write_text("torch\n-r others.txt\n")
    for name in ("links", "broken", "circle/a", "pipe", "bytes", "many"):
        (here / name).mkdir(parents=True)
    (here / "links/out").symlink_to("/etc/hostname")
    (here / "broken/gone").symlink_to("nowhere")
    (here / "circle/a/up").symlink_to("..")
    os.mkfifo(here / "pipe/fifo")
    (Path(os.fsdecode(os.fsencode(here / "bytes") + b"/caf\xe9"))).write_text("x")
    for number in range(2001):
        (here / "many" / f"{number}").touch()
    (here / "many/big").write_bytes(b"x" * 5000)
    return here


@pytest.fixture
def folder(tree: Path, yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tree)
    return tree


@pytest.mark.parametrize("name", DOCUMENTS)
def test_bad_job_file(server: FakeServer, yard: Yard, folder: Path, name: str) -> None:
    content, problem, hint = DOCUMENTS[name]
    (folder / "job.yml").write_bytes(content)
    said = yard("job", "create", "-f", "job.yml")
    assert said.code == 2, said.err
    first = said.err.splitlines()[0]
    assert first.startswith("error: job.yml:"), said.err
    assert problem in first
    assert hint in said.err
    assert "Traceback" not in said.err and said.out == b""
    assert not server.state.blobs and not server.state.posted and not server.state.manifests


def test_the_largest_files_are_named(server: FakeServer, yard: Yard, folder: Path) -> None:
    (folder / "job.yml").write_text("command: x\ncode: many\n")
    said = yard("job", "create", "-f", "job.yml")
    assert "2002 files of 2000 allowed; its largest files are\n" in said.err
    assert "      4.9 KB  big\n" in said.err
    assert len([line for line in said.err.splitlines() if line.startswith("  ")]) == 10


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["job", "create"], "missing option `-f` / `--file`", "yard job create --help"),
        (["job", "create", "-f", "nope.yml"], "the file `nope.yml` does not exist", "--file"),
        (["job", "create", "-f", "."], "`.` is a folder", "YAML"),
        (["job", "creat"], "`yard job creat` is no command", "did you mean `yard job create`?"),
        (["jobs"], "`yard jobs` is no command", "did you mean `yard job`?"),
        (["job", "list", "--experiment", "x"], "no option `--experiment`", "`--experiment-name`"),
        (["job", "list", "-r", "many"], "`many` is not a valid integer", "--help"),
        (["job", "list", "-o", "xml"], "invalid value for `-o` / `--output`", "--help"),
        (["job", "show"], "the job's name is missing", "--help"),
        (["job", "show", "a", "-n", "b"], "two names are given", "--help"),
        (["job", "show", "nope"], "job `nope` does not exist", "yard job list"),
        (["job", "download", "a", "--all", "--output-name", "b"], "exclude each other", "--help"),
        (["compute", "show", "nope"], "compute `nope` does not exist", "yard compute list"),
        (["compute", "create"], "the command: a compute needs a name", "--name"),
        (["model", "create", "-n", "m", "-p", "nope"], "--path: the path `nope`", "azureml"),
        (["model", "show", "a b"], "`a b` is no reference", "name:version"),
        (["job", "create", "-f", "job.yml", "--set", "x"], "`--set x` is no assignment", "a.b"),
        (["job", "create", "-f", "job.yml", "--set", "command.x=1"], "nothing can be set", "`x`"),
        (["job", "create", "-f", "job.yml", "--set", "resources.n=1"], "--set resources.n: u", ""),
        (["job", "create", "-f", "job.yml", "--set", "code=nope"], "--set code: the path `n", ""),
    ],
)  # fmt: skip
def test_bad_command_line(
    server: FakeServer, yard: Yard, arguments: list[str], error: str, hint: str
) -> None:
    Path("job.yml").write_text("command: x\n")
    said = yard(*arguments)
    assert said.code == 2, said.err
    assert said.err.startswith("error: ") and error in said.err.partition("\n")[0], said.err
    assert hint in said.err
    assert not server.state.posted


def test_wrong_token_and_no_server(
    server: FakeServer, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHYARD_TOKEN", "wrong")
    said = yard("job", "list")
    assert said.code == 2 and "error: the token is not good" in said.err
    monkeypatch.delenv("TORCHYARD_TOKEN")
    assert "hint: set TORCHYARD_TOKEN" in yard("job", "list").err
    monkeypatch.setenv("TORCHYARD_TOKEN", "x")
    monkeypatch.setenv("TORCHYARD_URL", "http://127.0.0.1:9")
    said = yard("job", "list")
    assert said.code == 1 and "error: no torchyard server answers at" in said.err
