"""Type the lines of `az` that documents and public scripts print, and write what they printed.

    python tools/run_az_lines.py --repository FOLDER.git > docs/transcripts/az-ml.md

`--repository` is a bare clone of https://github.com/Azure/azureml-examples; nothing of it is kept
here. A fresh server is started for it, and stopped at the end.

Owns: the folders in which lines are typed, the shell with its function `az`, the page.
Leaves: the lines to az_lines.yml.
Always: a line is typed as az_lines.yml has it, but for its placeholders; one that fails without
being named there as refused fails the program.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).resolve().with_name("az_lines.yml")
COPIED = ("cli/jobs/basics", "cli/jobs/single-step/scikit-learn/iris", "cli/assets",
          "cli/resources", "cli/jobs/single-step/pytorch/cifar-distributed")  # fmt: skip
_LIMIT_S = 1800
_MOST_SHOWN = 2
_CODE = re.compile(r"(\bcode=)[\w-]+")
_PUBLIC = ("https://azuremlexamples.blob.core.windows.net/datasets",
           "wasbs://datasets@azuremlexamples.blob.core.windows.net/")  # fmt: skip
_ACCEPT_STAND_IN = """
import importlib.abc, importlib.util, sys


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torchvision.datasets.cifar":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module.check_integrity = lambda path, md5=None: True

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
"""


_HEAD = """# Lines of `az`, as documents print them

Made by `python tools/run_az_lines.py --repository FOLDER.git` from [the list]\
(../../tools/az_lines.yml): the lines of `az` in Azure's document about ACPT and in the scripts \
and pages of Azure/azureml-examples that need only what is built. Each group was typed in one \
shell after `eval "$(yard client-env --az)"`, in a copy of the repository's folder, against a \
fresh server on a machine without a GPU. Lines are as printed but for their placeholders, with \
three exceptions: those under a heading "Of the form of" were put together from the lines of the \
files named there; in `cli/train.sh` `az ml job stream` stands for the loops that wait; and its \
last line has one `--set` more.

Of {count} lines {served} were to work and {refused} name what `yard` refuses or what its user \
has to upload first; {right} did as they should. Of the jobs that they created: {ends}.

Made beforehand: a datastore with `iris.csv`, to which the public address of the examples is \
mapped (`yard workspace map-url`), and the data asset `cifar-10-example`. Its pictures are random, \
in CIFAR-10's format; as torchvision compares the files' MD5, that `--set` is a variable with \
which the check is left out. The job's files are unmodified.
"""


@dataclass(frozen=True)
class Line:
    """One line of a document; `refused` is part of the error it has to give, empty for none."""

    text: str
    refused: str


@dataclass(frozen=True)
class Typed:
    """What came of a line."""

    line: Line
    exit_code: int
    output: str

    @property
    def is_expected(self) -> bool:
        if self.line.refused:
            return self.exit_code != 0 and self.line.refused in self.output
        return self.exit_code == 0


@dataclass(frozen=True)
class Group:
    """The lines of one document."""

    document: str
    folder: str
    files: Mapping[str, str]
    placeholders: Mapping[str, str]
    lines: Sequence[Line]


def read_groups() -> list[Group]:
    groups = []
    for entry in yaml.safe_load(LIST.read_text(encoding="utf-8")):
        lines = [
            Line(line, "") if isinstance(line, str) else Line(line["line"], line["refused"])
            for line in entry["lines"]
        ]
        groups.append(
            Group(
                entry["document"],
                entry["folder"],
                entry.get("files", {}),
                entry.get("placeholders", {}),
                lines,
            )
        )
    return groups


def filled(group: Group, line: Line) -> str:
    """The line as a user types it."""
    text = line.text
    for placeholder, value in group.placeholders.items():
        text = text.replace(placeholder, value)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="A folder for all that was printed.")
    options = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="az-lines-"))
    environ = {
        **{name: text for name, text in os.environ.items() if not name.startswith("AZURE")},
        "TORCHYARD_HOME": str(top / "home"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        _copy(options.repository, top / "typed")
        _prepare(top, environ)
        typed = [(group, _type(group, top, environ)) for group in read_groups()]
        jobs = _ended_jobs(environ)
    finally:
        subprocess.run(["yard", "server", "stop"], env=environ, stdout=subprocess.DEVNULL)
        if options.keep:
            shutil.copytree(top / "printed", options.keep, dirs_exist_ok=True)
        shutil.rmtree(top, ignore_errors=True)
    sys.stdout.write(page(typed, jobs, str(top)))
    wrong = [line for _, lines in typed for line in lines if not line.is_expected]
    for line in wrong:
        print(f"{line.line.text}\n  exit code {line.exit_code}: {line.output}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


def page(
    typed: Sequence[tuple[Group, Sequence[Typed]]], jobs: Sequence[Mapping[str, Any]], top: str
) -> str:
    """The page docs/transcripts/az-ml.md."""
    lines = [line for _, lines in typed for line in lines]
    served = sum(not line.line.refused for line in lines)
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job["status"]] = counts.get(job["status"], 0) + 1
    ends = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    right = sum(line.is_expected for line in lines)
    refused = len(lines) - served
    parts = [_HEAD.format(count=len(lines), served=served, refused=refused, right=right, ends=ends)]
    for group, group_lines in typed:
        parts.append(f"\n## {group.document}\n")
        parts.append("```console")
        for line in group_lines:
            parts.append("$ " + filled(group, line.line).replace("\n", "\n> "))
            parts += _shown(line.output.replace(top, "…"))
            if line.exit_code:
                parts.append(f"(exit code {line.exit_code})")
        parts.append("```")
    failed = [job for job in jobs if job["status"] != "Completed"]
    if failed:
        parts.append("\n## Jobs that did not complete\n")
        parts += [f"- `{job['display_name']}`: {_reason(job, top)}" for job in failed]
    return re.sub("\n{3,}", "\n\n", "\n".join(parts)) + "\n"


def _shown(output: str) -> list[str]:
    """Warnings and errors whole, of the rest the first lines; codes that sign in are left out."""
    lines = [_CODE.sub(r"\1…", line.rstrip()) for line in output.splitlines() if line.strip()]
    messages = [line for line in lines if line.startswith(("error:", "hint:", "warning:"))]
    others = [line for line in lines if line not in messages]
    more = len(others) - _MOST_SHOWN
    shown = others[:_MOST_SHOWN] + ([f"… {more} more lines"] if more > 0 else [])
    return [line[:200] for line in (*messages, *shown)]


def _reason(job: Mapping[str, Any], top: str) -> str:
    error = job.get("error")
    message = error.get("message", "") if isinstance(error, dict) else str(error or "")
    return f"{job['status']}: {message[:300]}".replace(top, "…").replace("\n", " ")


def _copy(repository: Path, target: Path) -> None:
    """Some folders of the repository; a file that the clone lacks is left out."""
    git = ["git", "--git-dir", str(repository)]
    listed = subprocess.check_output(
        [*git, "ls-tree", "-r", "-z", "--name-only", "HEAD", *COPIED], text=True
    )
    for name in filter(None, listed.split("\0")):
        shown = subprocess.run([*git, "show", f"HEAD:{name}"], capture_output=True)
        if shown.returncode == 0:
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(shown.stdout)


def _prepare(top: Path, environ: Mapping[str, str]) -> None:
    """What a user of these documents has already: the data that they name."""
    (top / "printed").mkdir()
    stand_ins = top / "stand-ins"
    (stand_ins / "example-data").mkdir(parents=True)
    rows = ["sepal_length,sepal_width,petal_length,petal_width,species"]
    chance = random.Random(0)
    for number in range(150):
        kind = number % 3
        widths = [f"{kind + 1 + chance.random():.1f}" for _ in range(4)]
        rows.append(",".join([*widths, ("setosa", "versicolor", "virginica")[kind]]))
    (stand_ins / "example-data" / "iris.csv").write_text("\n".join(rows) + "\n")
    shutil.copy(stand_ins / "example-data" / "iris.csv", stand_ins / "iris.csv")
    _make_cifar(stand_ins / "cifar" / "cifar-10-batches-py")
    accepting = top / "accepting"
    accepting.mkdir()
    (accepting / "sitecustomize.py").write_text(_ACCEPT_STAND_IN)
    stores = ("datastore", "create", "-n", "examples", "--type", "local")
    target = "azureml://datastores/examples/paths/"
    for words in (
        ("workspace", "update", "--rehearse-on-cpu"),
        (*stores, "--path", str(stand_ins)),
        ("data", "create", "-n", "cifar-10-example", "--path", str(stand_ins / "cifar")),
        *(("workspace", "map-url", prefix, target) for prefix in _PUBLIC),
    ):
        subprocess.run(["yard", *words], env=dict(environ), check=True, stdout=subprocess.DEVNULL)


def _make_cifar(folder: Path) -> None:
    """Random pictures in the format of CIFAR-10's files."""
    folder.mkdir(parents=True)
    chance = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        # The script expects full batches of its test set.
        pictures = chance.integers(0, 256, (128, 3072), dtype=np.uint8)
        labels = [number % 10 for number in range(128)]
        with open(folder / name, "wb") as file:
            pickle.dump({"batch_label": name, "labels": labels, "data": pictures}, file, 2)
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    with open(folder / "batches.meta", "wb") as file:
        pickle.dump({"label_names": names, "num_vis": 3072}, file, 2)


def _type(group: Group, top: Path, environ: Mapping[str, str]) -> list[Typed]:
    """Type the lines in one shell, one after the other."""
    folder = top / "typed" / group.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in group.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    printed = Path(tempfile.mkdtemp(dir=top / "printed"))
    script = [
        'eval "$(yard client-env --az)"',
        "GROUP=azureml-examples LOCATION=eastus WORKSPACE=main",
        f"accepting={shlex.quote(str(top / 'accepting'))}",
    ]
    for number, line in enumerate(group.lines):
        output = shlex.quote(str(printed / str(number)))
        script.append(f"{{ {filled(group, line)}\n}} > {output} 2>&1 < /dev/null")
        script.append(f"echo $? > {output}.code")
    subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=dict(environ),
        check=True,
        timeout=_LIMIT_S,
    )
    return [
        Typed(
            line,
            int((printed / f"{number}.code").read_text()),
            (printed / str(number)).read_text(errors="replace"),
        )
        for number, line in enumerate(group.lines)
    ]


def _ended_jobs(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every job, once it has ended."""
    command = ["yard", "job", "list", "-o", "json"]
    names = [job["name"] for job in json.loads(subprocess.check_output(command, env=dict(environ)))]
    for name in names:
        subprocess.run(
            ["yard", "job", "wait", name],
            env=dict(environ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LIMIT_S,
        )
    jobs: list[dict[str, Any]] = json.loads(subprocess.check_output(command, env=dict(environ)))
    return jobs


if __name__ == "__main__":
    main()
