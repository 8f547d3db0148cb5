"""Run the public sweep files of Azure ML unchanged, by its real client, and note what came of them.

    python tools/run_sweep_files.py --repository FOLDER.git > docs/transcripts/sweeps.md

`--repository` is a bare clone of https://github.com/Azure/azureml-examples; nothing of it is kept
here. A fresh server is started for it, and stopped at the end. The client is that of
`make azure-clients`.

Owns: the copies of the files, data in place of sites, the table.
Leaves: creating a sweep to azure-ai-ml, running it to the server.
Always: a file is submitted as the repository has it; a sweep that does not end as Completed, or has
another number of trials than the file says, fails the program.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CLIENT = "azure-ai-ml-1.35"
FILES = (
    "cli/jobs/basics/hello-sweep.yml",
    "cli/jobs/single-step/lightgbm/iris/job-sweep.yml",
    "cli/jobs/single-step/scikit-learn/iris/job-sweep.yml",
)
_PUBLIC = ("https://azuremlexamples.blob.core.windows.net/datasets",
           "wasbs://datasets@azuremlexamples.blob.core.windows.net/")  # fmt: skip
_LIMIT_S = 3600
_ENDED = ("Completed", "Failed", "Canceled")
_SUBMIT = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from azure.ai.ml import MLClient, load_job
from azure.identity import DefaultAzureCredential
ml = MLClient.from_config(DefaultAzureCredential(), path=sys.argv[1])
print(ml.jobs.create_or_update(load_job(sys.argv[2])).name)
"""
_LOOK = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from azure.ai.ml import MLClient
from azure.identity import DefaultAzureCredential
ml = MLClient.from_config(DefaultAzureCredential(), path=sys.argv[1])
sweep = ml.jobs.get(sys.argv[2])
ml.jobs.download(sweep.name, download_path=sys.argv[3], all=True)
print(json.dumps({
    "status": sweep.status,
    "best": sweep.properties.get("best_child_run_id"),
    "children": [child.name for child in ml.jobs.list(parent_job_name=sweep.name)],
}))
"""
_HEAD = """# Sweep files of Azure/azureml-examples, unchanged

Made by `python tools/run_sweep_files.py --repository FOLDER.git`: every file of `type: sweep` in \
`cli/jobs` (commit {commit}), but for sweeps that are steps of pipelines. Each was submitted as it \
is by the real client ({client}: `load_job`, `create_or_update`, `get`, `list`, `download`) to a \
fresh server on a machine with {cores} cores, whose `cpu-cluster` has 4 nodes. In place of \
`iris.csv`, which lies on a site that this machine can't reach, stood a file of the same columns \
drawn from a seed, to which its public address was mapped (`yard workspace map-url`): the metrics \
mean nothing.

At once is the greatest number of trials whose time from start to end was shared. The best child \
is `properties.best_child_run_id`, as the client reads it; beside it stand its parameters and its \
primary metric. None has a best child where no trial logs the metric that the file names: such a \
sweep completes, and says so.

| file | sweep | trials | at once | best child | its parameters | its metric |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Ended:
    """What came of one file."""

    path: str
    document: Mapping[str, Any]
    look: Mapping[str, Any]
    trials: Sequence[Mapping[str, Any]]
    notices: Sequence[str]
    seconds: int

    @property
    def is_expected(self) -> bool:
        limits = self.document["limits"]
        counts = {len(self.trials), len(self.look["children"]), limits["max_total_trials"]}
        is_within = at_once(self.trials) <= int(limits["max_concurrent_trials"])
        return self.look["status"] == "Completed" and len(counts) == 1 and is_within


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("only", nargs="*", default=FILES)
    options = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="sweep-files-"))
    environ = {
        **{name: text for name, text in os.environ.items() if not name.startswith("AZURE")},
        "TORCHYARD_HOME": str(top / "home"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    try:
        _copy(options.repository, top / "files")
        _prepare(top, environ)
        ended = [_run(top, environ, path) for path in options.only]
    finally:
        subprocess.run(["yard", "server", "stop"], env=environ, stdout=subprocess.DEVNULL)
        shutil.rmtree(top, ignore_errors=True)
    git = ["git", "--git-dir", str(options.repository), "rev-parse", "--short", "HEAD"]
    commit = subprocess.check_output(git, text=True).strip()
    head = _HEAD.format(commit=commit, client=CLIENT, cores=os.cpu_count())
    sys.stdout.write(head + "".join(map(_row, ended)) + "".join(map(_notes, ended)))
    sys.exit(0 if all(each.is_expected for each in ended) else 1)


def at_once(trials: Sequence[Mapping[str, Any]]) -> int:
    """The greatest number of trials that ran at one time."""
    changes = []
    for trial in trials:
        if trial.get("started_at") and trial.get("ended_at"):
            changes += [(_moment(trial["ended_at"]), -1), (_moment(trial["started_at"]), 1)]
    running = peak = 0
    for _, change in sorted(changes):
        running += change
        peak = max(peak, running)
    return peak


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _copy(repository: Path, target: Path) -> None:
    """The sweep files, and the code beside them."""
    git = ["git", "--git-dir", str(repository)]
    folders = sorted({str(Path(path).parent) for path in FILES})
    listed = subprocess.check_output(
        [*git, "ls-tree", "-r", "-z", "--name-only", "HEAD", *folders], text=True
    )
    for name in filter(None, listed.split("\0")):
        shown = subprocess.run([*git, "show", f"HEAD:{name}"], capture_output=True)
        if shown.returncode == 0:
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(shown.stdout)


def _prepare(top: Path, environ: Mapping[str, str]) -> None:
    """The data that the files name, and the cluster."""
    stand_ins = top / "stand-ins"
    stand_ins.mkdir()
    chance = random.Random(0)
    rows = ["sepal_length,sepal_width,petal_length,petal_width,species"]
    for number in range(150):
        kind = number % 3
        widths = [f"{kind + 1 + chance.random():.1f}" for _ in range(4)]
        rows.append(",".join([*widths, ("setosa", "versicolor", "virginica")[kind]]))
    (stand_ins / "iris.csv").write_text("\n".join(rows) + "\n")
    target = "azureml://datastores/examples/paths/"
    for words in (
        ("datastore", "create", "-n", "examples", "--type", "local", "--path", str(stand_ins)),
        *(("workspace", "map-url", prefix, target) for prefix in _PUBLIC),
        *(("compute", "create", "-n", "cpu-cluster", "--type", "amlcompute", "--max-instances", "4",
           "--size", "Standard_D2"),),
        ("workspace", "config", "--path", str(top)),
    ):  # fmt: skip
        subprocess.run(["yard", *words], env=dict(environ), check=True, stdout=subprocess.DEVNULL)


def _run(top: Path, environ: Mapping[str, str], path: str) -> Ended:
    file = top / "files" / path
    document = yaml.safe_load(file.read_text())
    began = time.monotonic()
    name = _client(top, environ, _SUBMIT, str(file)).split()[-1]
    while (sweep := _yard(environ, "job", "show", "-n", name))["status"] not in _ENDED:
        assert time.monotonic() - began < _LIMIT_S, sweep["status"]
        time.sleep(1)
    seconds = round(time.monotonic() - began)
    printed = _client(top, environ, _LOOK, name, str(top / "downloaded" / name))
    jobs = _yard(environ, "job", "list", "--parent-job-name", name, "--all-results", "true")
    trials = [_yard(environ, "job", "show", "-n", job["name"]) for job in jobs]
    look = json.loads(printed.splitlines()[-1])
    notices = [str(notice) for notice in sweep.get("notices") or ()]
    return Ended(path, document, look, trials, notices, seconds)


def _client(top: Path, environ: Mapping[str, str], program: str, *arguments: str) -> str:
    """What a program of the real client printed."""
    shown = subprocess.check_output(
        ["yard", "client-env", "--shell", "json"], env=dict(environ), text=True
    )
    python = ROOT / ".azure-clients" / CLIENT / "bin" / "python"
    own_variables = {
        name: text for name, text in environ.items() if not name.startswith("TORCHYARD")
    }
    config = str(top / ".azureml" / "config.json")
    command = [str(python), "-c", program, config, *arguments]
    variables = {**own_variables, **json.loads(shown)}
    done = subprocess.run(command, env=variables, cwd=top, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the client failed: {done.stderr[-4000:]}")
    return done.stdout


def _yard(environ: Mapping[str, str], *words: str) -> Any:
    shown = subprocess.check_output(["yard", *words, "-o", "json"], env=dict(environ), text=True)
    return json.loads(shown)


def _row(ended: Ended) -> str:
    best = next((each for each in ended.trials if each["name"] == ended.look["best"]), None)
    metric = ended.document["objective"]["primary_metric"]
    counts: dict[str, int] = {}
    for trial in ended.trials:
        counts[trial["status"]] = counts.get(trial["status"], 0) + 1
    cells = [
        f"`{ended.path}`",
        f"{ended.look['status']}, {ended.seconds} s",
        ", ".join(f"{count} {status}" for status, count in sorted(counts.items())),
        f"{at_once(ended.trials)} of {ended.document['limits']['max_concurrent_trials']}",
        f"`…_{best['name'].rpartition('_')[2]}`" if best else "none",
        f"`{_parameters(best)}`" if best else "",
        f"{metric} {best['metrics'][metric]:.5g}" if best else f"{metric} is logged by none",
    ]
    return f"| {' | '.join(cells)} |\n"


def _parameters(trial: Mapping[str, Any]) -> str:
    texts = {**trial.get("properties", {}), **trial.get("tags", {})}
    return str(texts.get("hyperparameters") or "")


def _notes(ended: Ended) -> str:
    return "".join(f"\n`{ended.path}`: {notice}\n" for notice in ended.notices)


if __name__ == "__main__":
    main()
