"""What was asked wrongly, over the real command line against the real server: place, hint, exit
code 2, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.real_server import RealServer
from sentences import Sentence
from torchyard import command

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True)
)

DOCUMENTS = {
    "empty": (b"", "1:1:"),
    "only comments": (b"# nothing\n\n", "1:1:"),
    "list": (b"- a\n- b\n", "1:1:"),
    "text": (b"just words", "1:1:"),
    "unclosed quote": (b"command: 'python\ncode: .\n", "3:1:"),
    "bad indentation": (b"command: x\n  code: .\n", "2:7:"),
    "colon in text": (b"command: echo a: b\n", "1:16:"),
    "tab": (b"command: x\nresources:\n\tinstance_count: 1\n", "3:1:"),
    "duplicate": (
        b"command: a\ncode: .\ncommand: b\n", "3:1:",
    ),
    "duplicate below": (
        b"command: a\nresources:\n  instance_count: 1\n  instance_count: 2\n", "4:3:",
    ),
    "undefined alias": (b"command: *.py\n", "1:11:"),
    "star": (b"command: *py\n", "1:10:"),
    "percent": (b"command: %x\n", "1:10:"),
    "alias bomb": (BOMB.encode(), ""),
    "circle": (b"command: &a [*a]\n", "1:10:"),
    "deep": (b"command: " + b"[" * 5000 + b"]" * 5000, "1:"),
    "tag": (b"command: !!python/object:os.system x\n", "1:10:"),
    "own tag": (b"command: !Secret x\n", "1:10:"),
    "binary tag": (b"command: !!binary aGk=\n", "1:10:"),
    "two documents": (b"command: a\n---\ncommand: b\n", "2:1:"),
    "list as key": (b"? [a, b]\n: c\n", "1:3:"),
    "placeholder": (b"command: {{NAME}}\n", "1:11:"),
    "placeholder in a text": (
        b"environment: {{NAME}}.azurecr.io/a:1\n", "1:22:",
    ),
    "not finite": (b"command: x\ninputs:\n  a: .nan\n", "3:6:"),
    "huge number": (b"limits: {timeout: 99999999999999999999999}\n", "1:19:"),
    "not UTF-8": (b"command: x\ndescription: caf\xe9\n", "2:17:"),
    "binary": (b"\x7fELF\x02\x01\x00\x00", "1:1:"),
    "zero byte": (b"command: a\x00b\n", "1:11:"),
    "too large": (b"#" * (10 << 20), "1:1:"),
    "merge of a text": (b"command: x\n<<: y\n", "2:5:"),
    # Found by the server, placed by the command.
    "more nodes than it may have": (
        b"command: x\nenvironment: python\ntorchyard:\n  max_nodes: 2\n  min_nodes: 3\n",
        "5:3:",
    ),
    "another number to start with": (
        b"command: x\nenvironment: python\nresources:\n  instance_count: 5\n"
        b"torchyard: {max_nodes: 2}\n", "4:3:",
    ),
    "unknown key": (b"command: x\ncomand: y\n", "2:1:"),
    "key in another's case": (b"Command: x\n", "1:1:"),
    "unknown key below": (
        b"command: x\nenvironment: python\n\nresources:\n  # how many\n  instance_counts: 2\n",
        "6:3:",
    ),
    "key at the wrong level": (
        b"command: x\nenvironment: python\ninstance_count: 2\n", "3:1:",
    ),
    "unknown key of an input": (
        b"command: x\nenvironment: python\ninputs:\n  a:\n    type: uri_file\n    paht: y\n",
        "6:5:",
    ),
    "unknown key of an output": (
        b"command: x\nenvironment: python\noutputs:\n  a:\n    tpye: uri_file\n",
        "5:5:",
    ),
    "unknown key of the environment": (
        b"command: x\nenvironment:\n  imgae: python:3.11\n", "3:3:",
    ),
    "unknown key of the distribution": (
        b"command: x\nenvironment: python\ndistribution:\n  type: pytorch\n"
        b"  process_count: 2\n", "5:3:",
    ),
    "unknown key of the limits": (
        b"command: x\nenvironment: python\nlimits: {timeuot: 3}\n", "3:10:",
    ),
    "missing command": (b"environment: python\n", "1:1:"),
    "missing environment": (b"# a job\ncommand: x\n", "2:1:"),
    "empty command": (b"command: ''\nenvironment: python\n", "1:1:"),
    "command of a wrong type": (b"environment: python\ncommand: [a, b]\n", "2:1:"),
    "instance count of a wrong type": (
        b"command: x\nenvironment: python\nresources: {instance_count: two}\n", "3:13:",
    ),
    "instance count below one": (
        b"command: x\nenvironment: python\nresources: {instance_count: 0}\n", "3:13:"
    ),
    "resources of a wrong type": (
        b"command: x\nenvironment: python\nresources: 2\n", "3:1:"
    ),
    "inputs of a wrong type": (
        b"command: x\nenvironment: python\ninputs: [a, b]\n", "3:1:"
    ),
    "timeout of a wrong type": (
        b"command: x\nenvironment: python\nlimits:\n  timeout: soon\n", "4:3:"
    ),
    "tags of a wrong type": (b"command: x\nenvironment: python\ntags: nice\n", "3:1:"),
    "unknown type of job": (b"type: comand\ncommand: x\n", "1:1:"),
    "another type of job": (b"type: automl\ncommand: x\n", "1:1:"),
    "unknown type of input": (
        b"command: x\nenvironment: python\ninputs:\n"
        b"  a: {type: uri_flie, path: 'https://e.org/x'}\n", "4:7:",
    ),
    "unknown mode": (
        b"command: x\nenvironment: python\ninputs:\n"
        b"  a: {type: uri_file, path: 'https://e.org/x', mode: ro_muont}\n", "4:48:",
    ),
    "unknown distribution": (
        b"command: x\nenvironment: python\ndistribution:\n  type: pytroch\n", "4:3:",
    ),
    "value and path": (
        b"command: x\nenvironment: python\ninputs:\n  a: {value: 1, path: 'azureml:x:1'}\n",
        "4:3:",
    ),
    "unknown expression": (
        b"command: echo ${{input.a}}\nenvironment: python\ninputs: {a: 1}\n", "1:1:"
    ),
    "expression of an absent input": (
        b"command: echo ${{inputs.dta}}\nenvironment: python\ninputs: {data: 1}\n",
        "1:1:",
    ),
    "name too long": (
        b"name: " + b"n" * 300 + b"\ncommand: x\nenvironment: python\n", "1:1:"
    ),
    "name with a slash": (b"name: a/b\ncommand: x\nenvironment: python\n", "1:1:"),
    "name taken": (
        b"name: taken\ncommand: another\nenvironment: python\n", "1:1:",
    ),
    "input name with blanks": (
        b"command: x\nenvironment: python\ninputs:\n  'a b': 1\n", "4:3:"
    ),
    "unknown compute": (
        b"command: x\nenvironment: python\ncompute: azureml:nope\n", "3:1:"
    ),
    "more nodes than there are": (
        b"command: x\nenvironment: python\nresources: {instance_count: 999}\n", "3:13:"
    ),
    "unknown environment": (
        b"command: x\nenvironment: azureml:nope:1\n", "2:1:"
    ),
    "unknown version of an environment": (
        b"command: x\nenvironment: azureml:python:99\n", "2:1:"
    ),
    "no reference": (b"command: x\nenvironment: 'azureml:a:b:c'\n", "2:1:"),
    "unknown data asset": (
        b"command: x\nenvironment: python\ninputs:\n  a: {path: 'azureml:nope:1'}\n",
        "4:7:",
    ),
    "unknown datastore": (
        b"command: x\nenvironment: python\ninputs:\n"
        b"  a: {path: 'azureml://datastores/nope/paths/x'}\n", "4:7:",
    ),
    "unknown job's output": (
        b"command: x\nenvironment: python\ninputs:\n"
        b"  a: {path: 'azureml://jobs/nope/outputs/model'}\n", "4:7:",
    ),
    "a path of a datastore where nothing is": (
        b"command: x\nenvironment: python\ninputs:\n"
        b"  a: {path: 'azureml://datastores/workspaceblobstore/paths/nope/'}\n", "4:7:",
    ),
    # Found here, in what the document names.
    "missing code": (b"command: x\ncode: ./nope\n", "2:1:"),
    "missing input": (
        b"command: x\nenvironment: python\ninputs:\n  a:\n    type: uri_folder\n    path: nope\n",
        "6:5:",
    ),
    "file as folder": (
        b"command: x\ninputs:\n  data:\n    path: job.yml\nenvironment: python\n",
        "4:5:",
    ),
    "folder as file": (
        b"command: x\ninputs:\n  data:\n    type: uri_file\n    path: .\nenvironment: python\n",
        "5:5:",
    ),
    "missing conda file": (
        b"command: x\nenvironment:\n  conda_file: conda.yml\n", "3:3:",
    ),
    "broken conda file": (
        b"command: x\nenvironment:\n  conda_file: broken.yml\n", "broken.yml:2:1",
    ),
    "faulty conda file": (
        b"command: x\nenvironment:\n  conda_file: faulty.yml\n", "faulty.yml:4:5",
    ),
    "faulty conda file of an environment's file": (
        b"command: x\nenvironment: file:env.yml\n", "faulty.yml:4:5",
    ),
    "faulty requirements": (
        b"command: x\nenvironment:\n  pip_requirements: faulty.txt\n", "faulty.txt:3:1",
    ),
    "faulty trial": (
        b"type: sweep\ntrial: trial.yml\nsearch_space: {a: {type: choice, values: [1]}}\n"
        b"sampling_algorithm: random\nobjective: {goal: minimize, primary_metric: m}\n",
        "trial.yml:1:1",
    ),
    "requirements of requirements": (
        b"command: x\nenvironment:\n  pip_requirements: nested.txt\n", "nested.txt:2:1",
    ),
    "path too long": (b"command: x\ncode: " + b"a" * 5000 + b"\n", "2:1:"),
    "link out": (b"command: x\ncode: links\n", "2:1:"),
    "broken link": (b"command: x\ncode: broken\n", "2:1:"),
    "circle of links": (b"command: x\ncode: circle\n", "2:1:"),
    "circle of files": (b"command: x\ncode: circle2\n", "2:1:"),
    "link out below": (b"command: x\ncode: deep\n", "2:1:"),
    "input that links out": (
        b"command: x\nenvironment: python\ninputs:\n  a: {path: links}\n", "4:7:",
    ),
    "no such repository": (
        b"command: x\nenvironment: python\ncode: git+file:///nowhere/at/all.git\n",
        "3:1:",
    ),
    "no such protocol for git": (
        b"command: x\nenvironment: python\ncode: git+ext::sh -c id\n", "3:1:"
    ),
    "a password in a URL": (
        b"command: x\nenvironment: python\n"
        b"code: git+file://user:secret@/nowhere/at/all.git\n", "3:1:",
    ),
    "pipe": (b"command: x\ncode: pipe\n", "2:1:"),
    "name not UTF-8": (b"command: x\ncode: bytes\n", "2:1:"),
    "too many files": (b"command: x\ncode: many\n", "2:1:"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the documents above name."""
    here = tmp_path_factory.mktemp("tree")
    (here / "broken.yml").write_text("a: [")
    (here / "faulty.yml").write_text("dependencies:\n- python=3.11\n- pip:\n  - -e .\n")
    (here / "env.yml").write_text("name: e\nconda_file: faulty.yml\n")
    (here / "faulty.txt").write_text("# of 2026\n\n--hash=sha256:00\n")
    (here / "trial.yml").write_text("command: x ${{search_space.b}}\nenvironment: python\n")
    (here / "nested.txt").write_text("torch\n-r others.txt\n")
    for name in ("links", "broken", "circle/a", "circle2", "deep/a/b", "pipe", "bytes", "many"):
        (here / name).mkdir(parents=True)
    (here / "links/out").symlink_to("/etc/hostname")
    (here / "broken/gone").symlink_to("nowhere")
    (here / "deep/a/b/out").symlink_to("/etc")
    (here / "circle2/me").symlink_to("me")
    (here / "circle/a/up").symlink_to("..")
    os.mkfifo(here / "pipe/fifo")
    (Path(os.fsdecode(os.fsencode(here / "bytes") + b"/caf\xe9"))).write_text("x")
    for number in range(2001):
        (here / "many" / f"{number}").touch()
    (here / "many/big").write_bytes(b"x" * 5000)
    return here


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = RealServer(tmp_path_factory.mktemp("server"))
    with server.client() as client:
        client.jobs.create(command(command="true", environment="python", name="taken"))
        client.jobs.cancel("taken")
    yield server
    server.stop()


@pytest.fixture
def folder(
    real: RealServer, tree: Path, yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder to be in; at the end the server holds what it held."""
    monkeypatch.setenv("TORCHYARD_URL", real.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", real.token)
    monkeypatch.chdir(tree)
    before = real.contents()
    # Of this test alone: others run beside it.
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield tree
    assert real.contents() == before
    assert list(temporary.iterdir()) == []


def test_there_are_enough_cases() -> None:
    assert len(DOCUMENTS) + len(COMMAND_LINES) >= 60


@pytest.mark.parametrize("name", DOCUMENTS)
def test_bad_job_file(yard: Yard, folder: Path, name: str, sentence: Sentence) -> None:
    content, place = DOCUMENTS[name]
    (folder / "job.yml").write_bytes(content)
    created = yard("job", "create", "-f", "job.yml")
    assert created.code == 2, created.err
    first = created.err.splitlines()[0]
    # What is wrong in a file that the job names is told at that file's line.
    file = "" if ".yml:" in place or ".txt:" in place else "job.yml:"
    assert first.startswith(f"error: {file}{place}"), created.err
    assert "Traceback" not in created.err and created.out == b"" and "secret" not in created.err
    if name in ("no such repository", "a password in a URL"):
        return  # only creating asks for those, and the sentence is git's
    sentence.is_printed(created.err)
    if name == "name taken":
        return  # only creating asks for it
    validated = yard("job", "validate", "-f", "job.yml", "-o", "none")
    assert (validated.code, validated.err) == (2, created.err)


def test_all_errors_of_a_file_are_told_at_once_in_its_order(yard: Yard, folder: Path) -> None:
    (folder / "job.yml").write_text(
        "comand: x\n"
        "limits: {timeout: 2h}\n"
        "environment: {conda_file: faulty.yml}\n"
        "command: train ${{inputs.epohcs}}\n"
        "inputs:\n"
        "  epochs: 3\n"
        "  data: {dataset: azureml:d:1}\n"
    )
    expected = (
        "error: job.yml:1:1: unknown key `comand`\n"
        "hint: did you mean `command`?\n"
        "error: job.yml:2:10: `timeout` must be a whole number of 0 or more, not `2h`\n"
        "hint: write seconds: `timeout: 7200`\n"
        "error: faulty.yml:4:5: pip option `-e` can't be used in an environment\n"
        "hint: list the packages themselves, each with its version\n"
        "error: job.yml:4:1: the command uses `${{inputs.epohcs}}`, and that input is not defined\n"
        "hint: did you mean `inputs.epochs`?\n"
        "error: job.yml:7:10: unknown key `dataset` under `inputs.data`\n"
        "hint: known keys: datastore, mode, path, path_on_compute, type, value; see "
        "docs/reference/job-file.md\n"
    )
    for verb in ("create", "validate"):
        answer = yard("job", verb, "-f", "job.yml", "-o", "none")
        assert (answer.code, answer.err) == (2, expected)


def test_paths_that_do_not_exist_hide_no_other_error(yard: Yard, folder: Path) -> None:
    (folder / "job.yml").write_text(
        "comand: x\n"
        "code: ./scr\n"
        "limits: {timeout: 2h}\n"
        "environment: {conda_file: nope.yml}\n"
        "command: train ${{inputs.data}}\n"
        "inputs:\n"
        "  data: {path: ./none}\n"
    )
    for verb in ("create", "validate"):
        answer = yard("job", verb, "-f", "job.yml", "-o", "none")
        errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
        assert answer.code == 2
        assert errors == [
            "error: job.yml:1:1: unknown key `comand`",
            "error: job.yml:2:1: the path `./scr` does not exist",
            "error: job.yml:3:10: `timeout` must be a whole number of 0 or more, not `2h`",
            "error: job.yml:4:15: the path `nope.yml` does not exist",
            "error: job.yml:7:10: the path `./none` does not exist",
        ]


def test_a_file_of_a_misspelt_type_is_read_as_the_nearest_one(yard: Yard, folder: Path) -> None:
    (folder / "job.yml").write_text(
        "type: command_job\ncommand: x\nenvironment: python\ncode: {local_path: src}\n"
        "distribution: pytorch\n"
    )
    assert yard("job", "create", "-f", "job.yml").err == (
        "error: job.yml:1:1: `command_job` is not a valid `type`\n"
        "hint: did you mean `command`?\n"
        "error: job.yml:4:1: `code` must be text, not a mapping\n"
        "hint: write `code: …` with a text\n"
        "error: job.yml:5:1: `distribution` must be a mapping of keys to values, not `pytorch`\n"
        "hint: for example `distribution: {type: pytorch, process_count_per_instance: 2}`\n"
    )


@pytest.mark.parametrize(
    ("noun", "document", "positions"),
    [
        ("environment", "name: a b\nimage: python:3.11\ntags: 3\n", ["1:1", "3:1"]),
        ("data", "name: d\nlocal_path: x\ntags: 3\n", ["2:1", "3:1"]),
        ("model", "name: m\npath: azureml://datastores/a/paths/b\nasset_path: x\ntags: 3\n",
         ["3:1", "4:1"]),
        ("component", "name: c\ncommand: x\nenvironment: python\ncod: x\ntags: 3\n",
         ["4:1", "5:1"]),
        ("compute", "name: c-1\nvm_size: x\ntier: no\n", ["2:1", "3:1"]),
        ("online-endpoint", "name: d\nauth_mode: no\ntags: 3\n", ["1:1", "2:1", "3:1"]),
    ],
)  # fmt: skip
def test_all_errors_of_other_files_are_told_at_once(
    yard: Yard, folder: Path, noun: str, document: str, positions: list[str]
) -> None:
    (folder / "file.yml").write_text(document)
    answer = yard(noun, "create", "-f", "file.yml")
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert answer.code == 2
    assert [line.split(": ")[1].removeprefix("file.yml:") for line in errors] == positions


def test_the_largest_files_are_named(yard: Yard, folder: Path) -> None:
    (folder / "job.yml").write_text("command: x\ncode: many\n")
    answer = yard("job", "create", "-f", "job.yml")
    assert "2002 files of 2000 allowed; its largest files are\n" in answer.err
    assert "      5.0 kB  big\n" in answer.err
    assert len([line for line in answer.err.splitlines() if line.startswith("  ")]) == 10


COMMAND_LINES = [
        (["job", "create"], "the job file is missing: use `-f FILE`", "yard job create --help"),
        (["job", "create", "-f", "nope.yml"], "the file `nope.yml` does not exist", "--file"),
        (["job", "create", "-f", "."], "`.` is a folder", "YAML"),
        (["job", "creat"], "`yard job creat` is not a command", "did you mean `yard job create`?"),
        (["jobs"], "`yard jobs` is not a command", "did you mean `yard job`?"),
        (["job", "list", "--experiment", "x"], "no option `--experiment`", "`--experiment-name`"),
        (["job", "list", "-r", "many"], "`many` is not a whole number", "--help"),
        (["job", "list", "-o", "xml"], "invalid value for `-o` / `--output`", "--help"),
        (["job", "show"], "the job name is missing", "--help"),
        (["job", "show", "a", "-n", "b"], "two names were given", "--help"),
        (["job", "show", "nope"], "job `nope` does not exist", "yard job list"),
        (["job", "download", "a", "--all", "--output-name", "b"], "can't be combined", "--help"),
        (["compute", "show", "nope"], "compute `nope` does not exist", "yard compute list"),
        (["compute", "create"], "a compute needs a name", "--name"),
        (["model", "create", "-n", "m", "-p", "nope"], "--path: the path `nope`", "azureml"),
        (["job", "list", "--query", "[?"], "`--query [?` is not a JMESPath", "[].name"),
        (["job", "list", "--archived-only", "--include-archived"], "can't be combined", "--help"),
        (["job", "create", "job.yml", "-f", "job.yml"], "two job files were given", "--help"),
        (["job", "update", "taken", "--set", "tag.x=1"], "`tag` can't be changed", "`tags`"),
        (["job", "update", "taken"], "no changes were given", "--set"),
        (["job", "submit"], "`yard job submit` is not a command", "mean `yard job create`?"),
        (["job", "clone", "nope"], "job `nope` does not exist", "yard job list"),
        (["job", "code", "taken"], "job `taken` has no code snapshot", "without `code`"),
        (["job", "validate"], "the job file is missing", "--help"),
        (["az", "ml", "job", "list"], "`yard az` is not a command", "leave out `az ml`"),
        (["data", "create", "-n", "d", "-p", "nope"], "--path: the path `nope` does", "azureml"),
        (["data", "create", "-n", "d", "-p", "job.yml", "-t", "uri_folder"], "--path: the", "uri_"),
        (["data", "show", "d:1", "-v", "2"], "two versions were given", "--help"),
        (["data", "create", "-n", "d", "-p", "links", "-t", "uri_folder"], "points out", "copy"),
        (["datastore", "create"], "a datastore needs a name", "--name"),
        (["workspace", "create"], "a workspace needs a name", "--name"),
        (["workspace", "map-url", "https://e.org"], "the target is missing", "azureml://datast"),
        (["model", "create", "-n", "m", "--tags", "x"], "`--tags x` is not a tag", "key=value"),
        (["environment", "show", "pyhton"], "environment `pyhton` does not", "`python`?"),
        (["completion", "tcsh"], "invalid value for", "--help"),
        (["model", "show", "a b"], "model `a b` does not exist", "yard model list"),
        (["job", "create", "-f", "job.yml", "--set", "x"], "x` is not an assignment", "a.b"),
        (["job", "create", "-f", "job.yml", "--set", "command.x=1"], "nothing can be set", "`x`"),
        (["job", "create", "-f", "job.yml", "--set", "resources.n=1"], "--set resources.n: u", ""),
        (["job", "create", "-f", "job.yml", "--set", "code=nope"], "--set code: the path `n", ""),
        (["job", "create", "-f", "job.yml", "-a", "no/x.json"], "x.json` can't be written", "file"),
        (["job", "create", "-f", "job.yml", "-a", "."], "`.` can't be written", "file"),
        (["job", "show", "\udcff"], "contains bytes that are not valid UTF-8", "UTF-8"),
        (["job", "metrics", "taken", "--from", "5"], "need `--plot` or `--export`", "--help"),
        (["job", "metrics", "taken", "--x", "time"], "need `--plot` or `--export`", "--help"),
        (["job", "metrics", "taken", "--plot", "--to", 2**70], "invalid value for `--to`", ""),
        (["workspace", "show", "default", "-n", "other"], "two names were given", "--help"),
        (["workspace", "update", "default", "-n", "b", "--description", "x"], "two names", ""),
        (["quota", "set", "nodes=²"], "`²` is not a whole number", "none"),
        (["quota", "set", f"storage={'9' * 400}GB"], "is too large", "smaller"),
        (["quota", "set", f"run_time={'9' * 400}d"], "is too large", "smaller"),
        (["gc", "--dry-run", "--budget", f"{'9' * 400}GB"], "is too large: write `50GB`", "--help"),
    ]  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "hint"), COMMAND_LINES)
def test_bad_command_line(
    yard: Yard, folder: Path, arguments: list[object], error: str, hint: str
) -> None:
    Path("job.yml").write_text("command: x\nenvironment: python\n")
    answer = yard(*arguments)
    assert answer.code == 2, answer.err
    assert answer.err.startswith("error: ") and error in answer.err.partition("\n")[0], answer.err
    assert hint in answer.err, answer.err


UNREADABLE = {
    "job file": ("job.yml", "error: the file `job.yml` can't be read (Permission denied)"),
    "code": ("src/secret.py", "error: job.yml:3:1: `secret.py` can't be read (Permission denied)"),
    "folder in code": ("src/deep", "error: job.yml:3:1: `/"),
    "input": ("data.csv", "error: job.yml:5:23: `data.csv` can't be read (Permission denied)"),
    "conda file": ("conda.yml", "error: job.yml:7:3: the file `conda.yml` can't be read"),
    "ignore file": ("src/.amlignore", "error: job.yml:3:1: `"),
}


@pytest.fixture
def ordinary(real: RealServer) -> Iterator[Path]:
    """A folder of an ordinary user's with a whole job in it."""
    here = Path(tempfile.mkdtemp(prefix="torchyard-bad-input-"))
    (here / "src/deep").mkdir(parents=True)
    for name in ("src/secret.py", "src/deep/x.py", "src/.amlignore", "data.csv"):
        (here / name).write_text("")
    (here / "conda.yml").write_text("dependencies: [python=3.11]\n")
    (here / "job.yml").write_text(
        "command: x\n# where\ncode: src\n"
        "inputs:\n  a: {type: uri_file, path: data.csv}\n"
        "environment:\n  conda_file: conda.yml\n"
    )
    yield here
    for path in [here, *here.rglob("*")]:
        path.chmod(path.stat().st_mode | stat.S_IRWXU)
    shutil.rmtree(here)


# Python itself may lie where an ordinary user can't read it: all is imported before root is left.
AS_NOBODY = """
import os, sys
from torchyard.cli.parsing.group import run
run(["job", "validate", "-f", "job.yml", "-o", "none"])
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print("NOW", file=sys.stderr, flush=True)
sys.exit(run(["job", "create", "-f", "job.yml"]))
"""


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_an_ordinary_user_cannot_read(real: RealServer, ordinary: Path, name: str) -> None:
    """Root may read everything, so this is always asked by somebody else."""
    file, error = UNREADABLE[name]
    if os.getuid() == 0:
        for path in [ordinary, *ordinary.rglob("*")]:
            os.chown(path, 65534, 65534)
    (ordinary / file).chmod(0)
    before = real.contents()
    ran = subprocess.run(
        [sys.executable, "-c", AS_NOBODY],
        cwd=ordinary,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TORCHYARD_URL": real.url,
            "TORCHYARD_TOKEN": real.token,
            "TORCHYARD_HOME": str(ordinary / "home"),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    answer = ran.stderr.partition("NOW\n")[2]
    assert ran.returncode == 2, ran.stderr
    assert answer.startswith(error), ran.stderr
    assert "\nhint: " in answer and "Traceback" not in answer
    assert real.contents() == before


def test_wrong_token_and_no_server(
    real: RealServer, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHYARD_URL", real.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", "wrong")
    answer = yard("job", "list")
    assert answer.code == 2 and "error: the token is unknown to this server" in answer.err
    monkeypatch.delenv("TORCHYARD_TOKEN")
    assert "set TORCHYARD_TOKEN" in yard("job", "list").err
    monkeypatch.setenv("TORCHYARD_TOKEN", "x")
    monkeypatch.setenv("TORCHYARD_URL", "http://127.0.0.1:9")
    answer = yard("job", "list")
    assert answer.code == 1 and "error: no torchyard server answers at" in answer.err
    for url in ("http://127.0.0.1:99999", "http://[::1", "http://host:port"):
        monkeypatch.setenv("TORCHYARD_URL", url)
        answer = yard("job", "list")
        assert answer.code == 2 and f"error: `{url}` is not a server's address" in answer.err
    monkeypatch.setenv("TORCHYARD_URL", real.url)
    for token in ("two\nlines", "größe", "\u65e5"):
        monkeypatch.setenv("TORCHYARD_TOKEN", token)
        answer = yard("job", "list")
        assert answer.code == 2 and "error: the token for the server is not a token" in answer.err
