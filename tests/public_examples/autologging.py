"""Run public scripts by hand against a real MLflow server and as jobs, and compare the runs.

    python tests/public_examples/autologging.py --root mlflow=DIR --root azureml=DIR \\
        [--mlflow 3.11.1] [--only NAME …] [--home DIR] [--markdown]

The scripts are named in autologging.yml; DIR is a checkout of mlflow/mlflow, and one of
Azure/azureml-examples. Both runs of a script use one environment, which torchyard builds; the
MLflow server is started from it too. `--home` keeps it for the next time.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from torchyard import Client
from torchyard.base.errors import TorchyardError
from torchyard.base.settings import Settings
from torchyard.client import embedded

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parents[1] / "benchmarks")]

import recorded_runs  # noqa: E402
from server import mlflow_server  # noqa: E402

READER = HERE / "recorded_runs.py"
PACKAGES = (
    "torch==2.13.0",
    "torchvision==0.28.0",
    "lightning>=2.5,<3",
    "jsonargparse[signatures]",
    "scikit-learn",
    "sqlalchemy<2.1",  # MLflow 2's server imports what 2.1 has no more
    "lightgbm",
    "pandas",
    "matplotlib",
)
ENDED = ("Completed", "Failed", "Canceled")
# One thread: sums come out the same.
STEADY = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SEEDED = '''"""Run a script with every seed set."""
import random, runpy, sys

import numpy

random.seed(7)
numpy.random.seed(7)
try:
    import torch
except ImportError:
    pass
else:
    torch.manual_seed(7)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
'''
# Each leaves the files that a script would have downloaded; run by the environment's Python.
DATA = {
    "iris.csv": """
from sklearn.datasets import load_iris
found = load_iris(as_frame=True)
frame = found.data.copy()
frame.columns = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
frame["species"] = [found.target_names[number] for number in found.target]
frame.to_csv("iris.csv", index=False)
""",
    "diabetes.csv": """
from sklearn.datasets import load_diabetes
load_diabetes(as_frame=True).frame.to_csv("diabetes.csv", index=False)
""",
    # The digits of scikit-learn in MNIST's format and size.
    "mnist": """
import pathlib, struct
import numpy
from sklearn.datasets import load_digits
found = load_digits()
images = numpy.kron(found.images * 15, numpy.ones((3, 3)))
images = numpy.pad(images, ((0, 0), (2, 2), (2, 2))).astype("uint8")
folder = pathlib.Path("dataset/MNIST/raw")
folder.mkdir(parents=True)
for name, count in (("train", 60_000), ("t10k", 10_000)):
    chosen = numpy.arange(count) % len(images)
    header = struct.pack(">IIII", 2051, count, 28, 28)
    (folder / f"{name}-images-idx3-ubyte").write_bytes(header + images[chosen].tobytes())
    labels = found.target[chosen].astype("uint8").tobytes()
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels)
""",
}


@dataclass(frozen=True)
class Script:
    """A line of autologging.yml."""

    name: str
    root: str
    code: str
    command: str
    sample: str
    data: tuple[str, ...] = ()
    only: int = 0


@dataclass(frozen=True)
class Outcome:
    """What came of one script."""

    name: str
    compared: Mapping[str, int]
    differences: list[str]


@dataclass(frozen=True)
class Bench:
    """One torchyard, one MLflow server and the Python that both run scripts with."""

    client: Client
    settings: Settings
    python: Path
    requirements: list[str]
    mlflow_url: str
    suffix: str

    def compare(self, script: Script, code: Path) -> Outcome:
        experiment = f"{script.name}-{self.suffix}"
        theirs_at = {"MLFLOW_TRACKING_URI": self.mlflow_url}
        server = json.loads(self.settings.server_file.read_text())
        ours_at = {
            "MLFLOW_TRACKING_URI": server["url"],
            "MLFLOW_TRACKING_TOKEN": self.settings.token_file.read_text().strip(),
        }
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary, "code")
            shutil.copytree(code, folder)
            (folder / "seeded.py").write_text(SEEDED)
            for name in script.data:
                run([self.python, "-c", DATA[name]], folder, {})
            job = {
                "name": experiment,
                "experiment_name": experiment,
                "command": script.command,
                "code": "code",
                "environment": {"pip_requirements": self.requirements},
                "environment_variables": STEADY,
            }
            try:
                self.job(job, Path(temporary))
                command = [self.python, *shlex.split(script.command)[1:]]
                run(command, folder, {**STEADY, **theirs_at, "MLFLOW_EXPERIMENT_NAME": experiment})
                read = [self.python, READER, experiment, script.sample]
                theirs = json.loads(run(read, HERE, theirs_at))
                recorded = json.loads(run(read, HERE, ours_at))
            except SystemExit as error:
                return Outcome(script.name, {}, [str(error)])
        differences = recorded_runs.differences(recorded, theirs)
        return Outcome(script.name, recorded_runs.counts(theirs), differences)

    def job(self, document: dict[str, Any], folder: Path) -> None:
        """Run it to its end.

        Raises:
            SystemExit: it did not complete.
        """
        output = run_job(self.client, document, folder)
        status = self.client.jobs.get(document["name"]).status
        if status != "Completed":
            raise SystemExit(f"the job is {status}: {output[-1500:]}")


def run_job(client: Client, document: dict[str, Any], folder: Path) -> str:
    """What the job printed; it has ended."""
    job = client.jobs.create(document, folder)
    output = io.BytesIO()
    job.stream(out=output)
    return output.getvalue().decode(errors="replace")


def run(command: list[Any], cwd: Path, more: Mapping[str, str]) -> str:
    """What it printed.

    Raises:
        SystemExit: it failed.
    """
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MLFLOW_", "TORCHYARD_", "PYTHONPATH"))
    }
    variables = {**environ, **more, "GIT_PYTHON_REFRESH": "quiet"}
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))[:200]}\n{done.stderr[-1500:]}")
    return done.stdout


def environment_python(client: Client, requirements: list[str], suffix: str) -> Path:
    """The interpreter of the shared environment, asked of a job in it."""
    document = {
        "name": f"probe-{suffix}",
        "command": 'python -c "import mlflow; print(mlflow.__file__)"',
        "environment": {"pip_requirements": requirements},
    }
    with tempfile.TemporaryDirectory() as folder:
        output = run_job(client, document, Path(folder))
    paths = [line for line in output.splitlines() if line.endswith("mlflow/__init__.py")]
    if not paths:
        raise SystemExit(output)
    return Path(paths[-1].strip()).parents[4] / "bin" / "python"


def summary(outcome: Outcome) -> str:
    counted = ", ".join(f"{count} {part}" for part, count in outcome.compared.items())
    return "\n    ".join([f"{outcome.name}: {counted}", *(outcome.differences or ["equal"])])


def report(outcomes: list[Outcome], mlflow: str, markdown: bool) -> str:
    equal = sum(not outcome.differences for outcome in outcomes)
    lines = [f"MLflow {mlflow}: {equal} of {len(outcomes)} scripts recorded the same", ""]
    parts = ("runs", "params", "metrics", "points", "tags", "files", "models")
    if markdown:
        lines += [f"| script | {' | '.join(parts)} | differences |", "|---" * 9 + "|"]
    for outcome in outcomes:
        counted = [str(outcome.compared.get(part, "-")) for part in parts]
        differences = "; ".join(outcome.differences) or "none"
        if markdown:
            cells = " | ".join(counted)
            lines.append(f"| {outcome.name} | {cells} | {differences.replace(chr(10), ' ')} |")
        else:
            lines.append(summary(outcome))
    return "\n".join(lines)


def chosen(options: argparse.Namespace) -> list[Script]:
    listed = yaml.safe_load((HERE / "autologging.yml").read_text())
    scripts = [Script(**{**entry, "data": tuple(entry.get("data", ()))}) for entry in listed]
    major = int(options.mlflow.partition(".")[0])
    return [
        script
        for script in scripts
        if script.root in options.root
        and script.only in (0, major)
        and (not options.only or script.name in options.only)
    ]


def compare(options: argparse.Namespace, home: Path, progress: Callable[[str], None]) -> str:
    settings = Settings(home)
    requirements = [*PACKAGES, f"mlflow=={options.mlflow}"]
    suffix = time.strftime("%H%M%S")
    try:
        client = Client(workspace="default", settings=settings)
        progress("building the environment")
        python = environment_python(client, requirements, suffix)
        outcomes = []
        with (
            tempfile.TemporaryDirectory() as folder,
            mlflow_server(str(python), Path(folder)) as (url, _, _),
        ):
            bench = Bench(client, settings, python, requirements, url, suffix)
            for script in chosen(options):
                progress(script.name)
                outcomes.append(bench.compare(script, options.root[script.root] / script.code))
                progress(summary(outcomes[-1]))
    finally:
        embedded.stop(settings)
    return report(outcomes, options.mlflow, options.markdown)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", action="append", required=True, help="mlflow=DIR, azureml=DIR")
    parser.add_argument("--mlflow", default="3.11.1", help="the version that scripts run with")
    parser.add_argument("--only", action="append", help="a script's name")
    parser.add_argument("--home", type=Path, help="a torchyard home to use again")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    options = parser.parse_args()
    pairs = [root.partition("=") for root in options.root]
    options.root = {name: Path(folder).resolve() for name, _, folder in pairs}

    def progress(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    try:
        if options.home:
            print(compare(options, options.home.resolve(), progress))
        else:
            with tempfile.TemporaryDirectory() as home:
                print(compare(options, Path(home), progress))
    except TorchyardError as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from error


if __name__ == "__main__":
    main()
