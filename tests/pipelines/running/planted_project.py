"""A small project on the real server: a pipeline of three steps, of which a test changes one thing.

Owns: the project's files, what its steps make, running it.
Leaves: which changes there are, and what is expected of each, to test_planted_changes.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cli.real_server import RealServer
from cli.served_workspace import ServedWorkspace, count_as_built
from eventually import eventually
from jobs.support import Worker, attempt_of
from torchyard import Client
from torchyard.cli.parsing import documents
from torchyard.client.pipelines.pipelines import Explanation
from torchyard.pipelines import actions
from torchyard.pipelines.records.step_store import Outcome, StepRow

PREP = """\
name: prep
display_name: Prepare
description: Joins the parts.
type: command
inputs:
  raw: {type: uri_folder}
  rows: {type: integer, default: 100, min: 1}
outputs:
  data: {type: uri_folder}
command: python prep.py ${{inputs.raw}} ${{inputs.rows}} ${{outputs.data}}
code: prep
environment:
  pip_requirements: [numpy==2.1.0]
  python: "3.11"
"""

TRAIN = """\
name: train
type: command
inputs:
  data: {type: uri_folder}
  learning_rate: {type: number, default: 0.1, min: 0}
  epochs: {type: integer, default: 10}
  seed: {type: integer}
  limit: {type: integer, optional: true}
outputs:
  model: {type: uri_folder}
  last: {type: uri_folder}
command: >-
  python train.py ${{inputs.data}} --rate ${{inputs.learning_rate}} --epochs ${{inputs.epochs}}
  --seed ${{inputs.seed}} $[[--limit ${{inputs.limit}}]] ${{outputs.model}} ${{outputs.last}}
code: src
environment:
  pip_requirements: requirements.txt
environment_variables:
  LOG_LEVEL: info
  OMP_NUM_THREADS: "2"
  HF_TOKEN: hf_0123456789
distribution:
  type: pytorch
  process_count_per_instance: 2
resources:
  instance_count: 1
limits:
  timeout: 3600
"""

PIPELINE = """\
type: pipeline
display_name: Lines
description: Fits a line.
experiment_name: lines
tags: {team: vision}
inputs:
  seed: 7
jobs:
  prep:
    component: prep.yml
    inputs:
      raw: {type: uri_folder, path: data/raw}
  train:
    component: train.yml
    inputs:
      data: ${{parent.jobs.prep.outputs.data}}
      learning_rate: 0.1
      seed: ${{parent.inputs.seed}}
  check:
    command: python check.py ${{inputs.model}} ${{inputs.labels}} ${{inputs.tolerance}}
    code: checks
    environment: azureml:checking:1
    inputs:
      model: ${{parent.jobs.train.outputs.model}}
      labels: {type: uri_file, path: azureml:labels:1}
      tolerance: 1
    outputs:
      report: {type: uri_folder}
"""

NESTED = """\
name: fitted
type: pipeline
inputs:
  learning_rate: {type: number}
outputs:
  model: {type: uri_folder}
jobs:
  prep:
    component: prep.yml
    inputs:
      raw: {type: uri_folder, path: data/raw}
  train:
    component: train.yml
    inputs:
      data: ${{parent.jobs.prep.outputs.data}}
      learning_rate: ${{parent.inputs.learning_rate}}
      seed: 7
    outputs:
      model: ${{parent.outputs.model}}
"""

FILES = {
    "pipeline.yml": PIPELINE,
    "prep.yml": PREP,
    "train.yml": TRAIN,
    "fitted.yml": NESTED,
    "requirements.txt": "torch==2.4.0\ntqdm==4.66.0\n",
    "README.md": "# Lines\n",
    "data/raw/part-1.csv": "1,2\n3,4\n",
    "data/raw/part-2.csv": "5,6\n",
    "data/labels.csv": "1\n2\n",
    "data/truth.csv": "1\n2\n",
    "data/other/labels.csv": "1\n3\n",
    "prep/prep.py": "import clean\n\nclean.run()\n",
    "prep/clean.py": "def run():\n    pass\n",
    "src/.amlignore": "notes/\n*.log\n",
    "src/train.py": "import model\n\n# fit\nmodel.fit()\n",
    "src/run.sh": "#!/bin/sh\npython train.py\n",
    "src/model/__init__.py": "",
    "src/model/net.py": "WIDTH = 8\n",
    "src/model/loss.py": "SCALE = 2\n",
    "src/conf/base.yaml": "depth: 2\n",
    "src/conf/large.yaml": "depth: 9\n",
    "src/conf/größe.yaml": "px: 32\n",
    "src/notes/todo.md": "try a wider net\n",
    "checks/check.py": "print('ok')\n",
    "checks/.gitignore": "*.tmp\n",
    "checks/scratch.tmp": "1\n",
}

CHECKING = ["pandas==2.2.0", "scipy==1.14.0"]
NEWER_CHECKING = ["pandas==2.2.1", "scipy==1.14.0"]

# Environments without a lock, as before their build.
UNLOCKED = ["jax==0.4.35"]
MORE_UNLOCKED = ["flax==0.10.0", "jax==0.4.35"]

# All others that a change may come to.
_PREPS = ["numpy==2.1.0"]
_TRAINS = [
    ["torch==2.4.0", "tqdm==4.66.0"],
    ["tqdm==4.66.0", "torch==2.4.0"],
    ["torch==2.4.1", "tqdm==4.66.0"],
    ["torch==2.4.0"],
    ["torch==2.4.0", "tqdm==4.66.0", "einops==0.8.0"],
]
_BUILT: list[dict[str, Any]] = [
    *({"python": python, "pip_requirements": _PREPS} for python in ("3.11", "3.12")),
    *({"pip_requirements": packages} for packages in (*_TRAINS, CHECKING, NEWER_CHECKING)),
]


def count_environments_as_built(server: RealServer) -> None:
    """Each of the list has a lock, as after a build; nothing can run in it."""
    for definition in _BUILT:
        count_as_built(server.services, definition)
        lock_environment(server, definition)
    for packages in (UNLOCKED, MORE_UNLOCKED):
        count_as_built(server.services, {"pip_requirements": packages})


def lock_environment(server: RealServer, definition: Mapping[str, Any]) -> None:
    environments = server.services.environments
    spec = environments.resolver.resolve(definition)
    lines = (f"{package} \\\n    --hash=sha256:{'0' * 64}\n" for package in spec.requirements)
    environments.folders.paths(spec.hash).lock.write_text("".join(lines))
    environments.builds.run(spec)  # it finds the folder, and records the lock


def _first_made() -> dict[str, dict[str, dict[str, str]]]:
    model = {"weights.txt": "0.5\n"}
    return {
        "prep": {"data": {"rows.txt": "1\n2\n3\n"}},
        "train": {"model": {**model}, "last": {**model}},
        "check": {"report": {"report.txt": "ok\n"}},
        "extra": {},
    }


@dataclass
class Project:
    """The files of a project in `folder`, and a workspace that has its data and environments.

    Attributes:
        made: what each step makes when it runs: the files of its outputs, with their content.
    """

    folder: Path
    server: ServedWorkspace
    client: Client
    made: dict[str, dict[str, dict[str, str]]] = field(default_factory=_first_made)

    def __post_init__(self) -> None:
        for path, content in FILES.items():
            self.write(path, content)
        (self.folder / "src/conf/current.yaml").symlink_to("base.yaml")
        self.register_data("data/labels.csv")
        self.register_environment(CHECKING)

    def write(self, path: str, content: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode())

    def edit(self, path: str, old: str, new: str) -> None:
        content = (self.folder / path).read_text()
        assert content.count(old) == 1, f"{path} has `{old}` {content.count(old)} times"
        self.write(path, content.replace(old, new))

    def move(self, source: str, target: str) -> None:
        (self.folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.folder / source, self.folder / target)

    def remove(self, path: str) -> None:
        (self.folder / path).unlink()

    def document(self, path: str) -> dict[str, Any]:
        read: dict[str, Any] = yaml.safe_load((self.folder / path).read_text())
        return read

    def register_data(self, path: str, name: str = "labels") -> None:
        """The next version of a data asset."""
        kind = "uri_folder" if (self.folder / path).is_dir() else "uri_file"
        self.client.data.create({"name": name, "type": kind, "path": path}, self.folder)

    def register_environment(self, packages: list[str]) -> None:
        """The next version of `checking`."""
        self.client.environments.create({"name": "checking", "pip_requirements": packages})

    def register_component(self, path: str) -> None:
        self.client.components.create(self.document(path), self.folder)

    def run(self, name: str) -> dict[str, Explanation]:
        """Run the pipeline under this name, each job that it starts makes what `made` says;
        returns why each step ran.
        """
        document = documents.read(str(self.folder / "pipeline.yml"))
        self.client.jobs.create(document.value, document.folder, name=name)
        completed: set[str] = set()

        def has_ended() -> bool:
            # Read before the steps are: none starts once the pipeline has ended.
            pipeline = self.server.job(name)
            for each in actions.steps(self.server.services, pipeline):
                row = each.row
                if row.outcome is Outcome.LIVE and row.child_name not in completed:
                    completed.add(row.child_name)
                    self._complete(row)
            return pipeline.status.ended

        eventually(has_ended, f"pipeline {name} to end", every_s=0.005)
        assert self.server.job(name).status.value == "Completed", self.server.job(name).error
        return {each.step: each for each in self.client.pipelines.explain(name)}

    def _complete(self, step: StepRow) -> None:
        job = self.server.launched(step.child_name)
        document = self.server.document(step.child_name)
        made = self.made[step.name.rpartition(".")[2]]
        for output in document.get("outputs") or {}:
            for path, content in made[output].items():
                job.write_output(output, path, content.encode())
        attempt = attempt_of(self.server.services, self.server.job(step.child_name))
        nodes = (document.get("resources") or {}).get("instance_count") or 1
        for node in range(1, nodes):
            Worker(self.server.services, attempt, node).whole_life()
        job.complete()

    @property
    def datastore(self) -> Path:
        """The folder on the server that is `workspaceblobstore`."""
        return self.server.server.home / "datastores" / self.server.name / "workspaceblobstore"
