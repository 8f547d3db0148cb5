"""One thing of a project changes: what it matters to runs again and says why, the rest is reused.

The cases come from the guide on pipelines and from what an engineer expects, not from the code.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.real_server import RealServer
from cli.served_workspace import ServedWorkspace
from pipelines.running import planted_project
from pipelines.running.planted_project import (
    CHECKING,
    MORE_UNLOCKED,
    NEWER_CHECKING,
    UNLOCKED,
    Project,
    lock_environment,
)
from torchyard import Client
from torchyard.base.clock import FakeClock
from torchyard.base.settings import Settings
from torchyard.client.pipelines.pipelines import Explanation

pytestmark = pytest.mark.slow

Change = Callable[[Project], object]


@dataclass(frozen=True)
class Blame:
    """What the reasons of a step must name, and the values that they must show.

    Each reason names one of `names`, so that nothing else is blamed. Without `names` the step only
    has to run again and to say a reason.
    """

    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


def on(*names: str, values: tuple[str, ...] = ()) -> Blame:
    return Blame(names, values)


@dataclass(frozen=True)
class Case:
    """One change, and what is expected of it.

    Args:
        name: of the test.
        change: what is done to the project between two runs.
        reruns: the steps that must run again, all others being reused.
        before: done to the project before its first run.
        has_previous: whether the steps that run again are compared with those of the first run.
    """

    name: str
    change: Change
    reruns: Mapping[str, Blame] = field(default_factory=dict)
    before: Change = lambda project: None
    has_previous: bool = True


def edit(path: str, old: str, new: str) -> Change:
    return lambda project: project.edit(path, old, new)


def write(path: str, content: str) -> Change:
    return lambda project: project.write(path, content)


def move(source: str, target: str) -> Change:
    return lambda project: project.move(source, target)


def all_of(*changes: Change) -> Change:
    def change(project: Project) -> None:
        for each in changes:
            each(project)

    return change


def rewrite(path: str, change: Callable[[str], str]) -> Change:
    return lambda project: project.write(path, change((project.folder / path).read_text()))


def in_order_of_the_alphabet(path: str) -> Change:
    return lambda project: project.write(path, yaml.safe_dump(project.document(path)))


def makes(step: str, output: str, path: str, content: str) -> Change:
    """From now on the step makes this file."""
    return lambda project: project.made[step][output].update({path: content})


def swap_files(project: Project) -> None:
    net, loss = (project.folder / "src/model" / name for name in ("net.py", "loss.py"))
    first, second = net.read_text(), loss.read_text()
    net.write_text(second)
    loss.write_text(first)


def retarget_link(project: Project) -> None:
    project.remove("src/conf/current.yaml")
    (project.folder / "src/conf/current.yaml").symlink_to("large.yaml")


def touch_everything(project: Project) -> None:
    for file in project.folder.rglob("*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))


def move_the_component_file(project: Project) -> None:
    project.move("train.yml", "steps/train.yml")
    project.edit("steps/train.yml", "code: src", "code: ../src")
    project.edit("steps/train.yml", ": requirements.txt", ": ../requirements.txt")
    project.edit("pipeline.yml", "component: train.yml", "component: steps/train.yml")


def use_registered_component(project: Project) -> None:
    project.register_component("train.yml")
    project.edit("pipeline.yml", "component: train.yml", "component: azureml:train:1")


def register_next_component(project: Project) -> None:
    project.register_component("train.yml")
    project.edit("pipeline.yml", "azureml:train:1", "azureml:train:2")


def use_wide_cluster(project: Project) -> None:
    project.client.computes.create({"name": "wide", "type": "amlcompute", "max_instances": 8})
    project.edit("pipeline.yml", "inputs:\n  seed", "compute: azureml:wide\ninputs:\n  seed")


def nest(project: Project) -> None:
    """Have two equal steps in a component of the pipeline, and check what they make."""
    document = project.document("pipeline.yml")
    check = document["jobs"]["check"]
    check["inputs"]["model"] = "${{parent.jobs.fit.outputs.model}}"
    fit = {"type": "pipeline", "component": "fitted.yml", "inputs": {"learning_rate": 0.1}}
    document["jobs"] = {"fit": fit, "check": check}
    del document["inputs"]
    project.write("pipeline.yml", yaml.safe_dump(document, sort_keys=False))


def run_by_ada(project: Project) -> None:
    server = project.server
    project.client.users.create("ada", "contributor", server.name)
    token = project.client.users.create_token("ada", "first").token
    settings = Settings(server.server.home, server.url, token)
    project.client.close()
    project.client = Client(workspace=server.name, settings=settings)


def alter_what_was_made(project: Project) -> None:
    (project.datastore / MADE_FILE).write_text("1\n2\n4\n")


def remove_what_was_made(project: Project) -> None:
    (project.datastore / MADE_FILE).unlink()


def take_data_of_the_datastore(project: Project) -> None:
    shutil.copytree(project.folder / "data/raw", project.datastore / "raw")
    path = "azureml://datastores/workspaceblobstore/paths/raw/"
    project.edit("pipeline.yml", "path: data/raw}", f"path: '{path}'}}")


def alter_the_datastore(project: Project) -> None:
    """A byte, which leaves size and time of the file as they were."""
    file = project.datastore / "raw/part-1.csv"
    before = file.stat()
    file.write_text("1,2\n3,5\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def touch_the_datastore(project: Project) -> None:
    os.utime(project.datastore / "raw/part-1.csv", (1_000_000_000, 1_000_000_000))


def register_raw_data(project: Project) -> None:
    project.register_data("data/raw", "raw")
    project.edit("pipeline.yml", "path: data/raw}", "path: azureml:raw:1}")


def replace_link(project: Project) -> None:
    project.remove("src/conf/current.yaml")
    project.write("src/conf/current.yaml", "depth: 2\n")


def use_data(version: int, path: str) -> Change:
    """Register the file as the next version of the check's labels, and take that one."""
    return all_of(
        lambda project: project.register_data(path),
        edit("pipeline.yml", "azureml:labels:1", f"azureml:labels:{version}"),
    )


def use_environment(packages: list[str]) -> Change:
    return all_of(
        lambda project: project.register_environment(packages),
        edit("pipeline.yml", "azureml:checking:1", "azureml:checking:2"),
    )


def lock_jax(project: Project) -> None:
    lock_environment(project.server.server, {"pip_requirements": UNLOCKED})


def drop_check(project: Project) -> None:
    document = project.document("pipeline.yml")
    del document["jobs"]["check"]
    project.write("pipeline.yml", yaml.safe_dump(document))


def at_train(line: str) -> Change:
    """Add a line to the step in the pipeline's file."""
    return edit(
        "pipeline.yml", "    component: train.yml\n", f"    component: train.yml\n    {line}\n"
    )


MADE_FILE = "azureml/base_prep/data/rows.txt"
ANOTHER_PREP = edit("prep/prep.py", "clean.run()", "clean.run() ")
OTHER_ROWS = makes("prep", "data", "rows.txt", "1\n2\n4\n")
OTHER_MODEL = makes("train", "model", "weights.txt", "0.6\n")
EXTRA_STEP = "jobs:\n  extra:\n    command: echo extra\n    environment: azureml:checking:1\n"
SHARED_REPORT = "{type: uri_folder, path: 'azureml://datastores/workspaceblobstore/paths/reports'}"
OWN_REPORT = SHARED_REPORT.replace("reports", "reports/${{name}}")

CODE_MATTERS = [
    Case("a byte of a file", edit("src/train.py", "fit()", "fix()"), {"train": on("train.py")}),
    Case(
        "a byte of a file in a folder",
        edit("src/model/net.py", "8", "9"),
        {
            "train": on(
                "model/net.py",
            )
        },
    ),
    Case(
        "a renamed file",
        move("src/model/loss.py", "src/model/losses.py"),
        {"train": on("model/loss.py", "model/losses.py")},
    ),
    Case(
        "a moved folder",
        move("src/model", "src/nets"),
        {
            "train": on(
                *("model/__init__.py", "model/net.py", "model/loss.py"),
                *("nets/__init__.py", "nets/net.py", "nets/loss.py"),
            )
        },
    ),
    Case("an added file", write("src/model/head.py", "\n"), {"train": on("model/head.py")}),
    Case(
        "an added empty file", write("src/conf/__init__.py", ""), {"train": on("conf/__init__.py")}
    ),
    Case(
        "a removed file",
        lambda project: project.remove("src/model/loss.py"),
        {"train": on("model/loss.py")},
    ),
    Case(
        "an empty file that is filled",
        write("src/model/__init__.py", "from .net import WIDTH\n"),
        {"train": on("model/__init__.py")},
    ),
    Case(
        "line endings",
        rewrite("src/train.py", lambda text: text.replace("\n", "\r\n")),
        {"train": on("train.py")},
    ),
    Case(
        "contents of two files that are swapped",
        swap_files,
        {"train": on("model/net.py", "model/loss.py")},
    ),
    Case(
        "a file whose name is not ASCII",
        edit("src/conf/größe.yaml", "32", "64"),
        {"train": on("conf/größe.yaml")},
    ),
    Case(
        "a file that becomes executable",
        lambda project: (project.folder / "src/run.sh").chmod(0o755),
        {"train": on("run.sh")},
    ),
    Case("the target of a link", retarget_link, {"train": on("conf/current.yaml")}),
    Case(
        "a file that is ignored no longer",
        write("src/.amlignore", "*.log\n"),
        {"train": on(".amlignore", "notes/todo.md")},
    ),
]

DATA_MATTERS = [
    Case(
        "a byte of the data",
        edit("data/raw/part-1.csv", "3,4", "3,5"),
        {"prep": on("raw", "part-1.csv")},
    ),
    Case(
        "an added file of the data",
        write("data/raw/part-3.csv", "7,8\n"),
        {"prep": on("raw", "part-3.csv")},
    ),
    Case(
        "a renamed file of the data",
        move("data/raw/part-2.csv", "data/raw/part-9.csv"),
        {"prep": on("raw", "part-2.csv", "part-9.csv")},
    ),
    Case(
        "a byte of data that lies in a datastore",
        alter_the_datastore,
        {"prep": on("raw", "part-1.csv")},
        before=take_data_of_the_datastore,
    ),
    Case(
        "another version of a data asset",
        use_data(2, "data/other/labels.csv"),
        {"check": on("labels", "labels.csv")},
    ),
    Case(
        "another name of a file that is an input",
        use_data(2, "data/truth.csv"),
        {"check": on("labels", "labels.csv", "truth.csv")},
    ),
    Case(
        "an output of another step",
        edit("pipeline.yml", "jobs.train.outputs.model", "jobs.prep.outputs.data"),
        {"check": on("model", "weights.txt", "rows.txt")},
    ),
    Case(
        "what a step makes of other code",
        all_of(ANOTHER_PREP, OTHER_ROWS),
        {"prep": on("prep.py"), "train": on("data", "rows.txt")},
    ),
    Case(
        "what every step makes of what the one before made",
        all_of(ANOTHER_PREP, OTHER_ROWS, OTHER_MODEL),
        {
            "prep": on("prep.py"),
            "train": on("data", "rows.txt"),
            "check": on("model", "weights.txt"),
        },
    ),
    Case(
        "another name of a file that a step makes",
        all_of(
            edit("pipeline.yml", "learning_rate: 0.1", "learning_rate: 0.2"),
            lambda project: project.made["train"].update(model={"best.txt": "0.5\n"}),
        ),
        {
            "train": on("learning_rate", values=("0.1", "0.2")),
            "check": on("model", "weights.txt", "best.txt"),
        },
    ),
    Case("a made file that was altered", alter_what_was_made, {"prep": on("base_prep")}),
    Case("a made file that was removed", remove_what_was_made, {"prep": on("base_prep")}),
]

VALUES_MATTER = [
    Case(
        "a value",
        edit("pipeline.yml", "learning_rate: 0.1", "learning_rate: 0.2"),
        {"train": on("learning_rate", values=("0.1", "0.2"))},
    ),
    Case(
        "an integer that becomes a float",
        edit("pipeline.yml", "tolerance: 1", "tolerance: 1.0"),
        {"check": on("tolerance", values=("1", "1.0"))},
    ),
    Case(
        "an input of the pipeline",
        edit("pipeline.yml", "seed: 7", "seed: 8"),
        {"train": on("seed", values=("7", "8"))},
    ),
    Case(
        "the default of an input",
        edit("train.yml", "default: 10}", "default: 20}"),
        {"train": on("epochs", values=("10", "20"))},
    ),
    Case(
        "a value in place of the default",
        edit("pipeline.yml", "path: data/raw}", "path: data/raw}\n      rows: 50"),
        {"prep": on("rows", values=("50", "100"))},
    ),
    Case(
        "an optional input that is given",
        edit("pipeline.yml", "learning_rate: 0.1", "learning_rate: 0.1\n      limit: 5"),
        {"train": on("limit", values=("5",))},
    ),
    Case(
        "an input of a nested pipeline",
        edit("pipeline.yml", "learning_rate: 0.1", "learning_rate: 0.2"),
        {"fit.train": on("learning_rate", values=("0.1", "0.2"))},
        before=nest,
    ),
]

SETTINGS_MATTER = [
    Case(
        "the text of a command",
        edit("pipeline.yml", "check.py ${{", "check.py -v ${{"),
        {"check": on("command", values=("-v",))},
    ),
    Case(
        "the command of a component",
        edit("train.yml", "python train.py", "python -O train.py"),
        {"train": on("command", values=("-O",))},
    ),
    Case(
        "another version of a component, with another command",
        all_of(edit("train.yml", "python train.py", "python -O train.py"), register_next_component),
        {"train": on("command", values=("-O",))},
        before=use_registered_component,
    ),
    Case(
        "the newest version of a component, with other code",
        all_of(
            edit("src/train.py", "fit()", "fix()"),
            lambda project: project.register_component("train.yml"),
        ),
        {"train": on("train.py")},
        before=all_of(
            use_registered_component,
            edit("pipeline.yml", "azureml:train:1", "azureml:train@latest"),
        ),
    ),
    Case(
        "the value of a variable",
        edit("train.yml", 'OMP_NUM_THREADS: "2"', 'OMP_NUM_THREADS: "4"'),
        {"train": on("OMP_NUM_THREADS", values=("2", "4"))},
    ),
    Case(
        "an added variable",
        edit("train.yml", "  LOG_LEVEL: info", "  LOG_LEVEL: info\n  NCCL_DEBUG: WARN"),
        {"train": on("NCCL_DEBUG", values=("WARN",))},
    ),
    Case(
        "a removed variable",
        edit("train.yml", "  LOG_LEVEL: info\n", ""),
        {"train": on("LOG_LEVEL", values=("info",))},
    ),
    Case(
        "a variable at the step",
        at_train("environment_variables: {LOG_LEVEL: debug}"),
        {"train": on("LOG_LEVEL", values=("info", "debug"))},
    ),
    Case(
        "the version of a package",
        edit("requirements.txt", "torch==2.4.0", "torch==2.4.1"),
        {"train": on("torch", values=("2.4.0", "2.4.1"))},
    ),
    Case(
        "an added package",
        edit("requirements.txt", "tqdm==4.66.0\n", "tqdm==4.66.0\neinops==0.8.0\n"),
        {"train": on("einops", values=("0.8.0",))},
    ),
    Case(
        "a removed package",
        edit("requirements.txt", "tqdm==4.66.0\n", ""),
        {"train": on("tqdm", values=("4.66.0",))},
    ),
    Case(
        "an added package, before there is a lock",
        write("requirements.txt", "\n".join(MORE_UNLOCKED)),
        {"train": on("flax", values=("0.10.0",))},
        before=write("requirements.txt", "\n".join(UNLOCKED)),
    ),
    Case(
        "another version of an environment",
        use_environment(NEWER_CHECKING),
        {"check": on("pandas", values=("2.2.0", "2.2.1"))},
    ),
    Case(
        "the version of Python",
        edit("prep.yml", '"3.11"', '"3.12"'),
        {"prep": on("Python", values=("3.11", "3.12"))},
    ),
    Case(
        "the number of nodes",
        edit("train.yml", "instance_count: 1", "instance_count: 2"),
        {"train": on("resources.instance_count", values=("1", "2"))},
    ),
    Case(
        "the number of processes",
        edit("train.yml", "per_instance: 2", "per_instance: 4"),
        {"train": on("distribution.process_count_per_instance", values=("2", "4"))},
    ),
    Case(
        "the kind of processes",
        edit("train.yml", "type: pytorch", "type: mpi"),
        {"train": on("distribution", values=("pytorch", "mpi"))},
    ),
    Case(
        "an added output",
        all_of(
            edit(
                "train.yml",
                "  last: {type: uri_folder}",
                "  last: {type: uri_folder}\n  best: {type: uri_folder}",
            ),
            lambda project: project.made["train"].update(best={"weights.txt": "0.5\n"}),
        ),
        {"train": on("best")},
    ),
    Case(
        "the mode of an input",
        edit("pipeline.yml", "path: data/raw}", "path: data/raw, mode: direct}"),
        {"prep": on("raw", values=("direct",))},
    ),
    Case(
        "the mode of an output",
        edit("pipeline.yml", "report: {type: uri_folder}", "report: {mode: direct}"),
        {"check": on("report", values=("direct",))},
    ),
    Case(
        "the type of an output",
        edit("pipeline.yml", "report: {type: uri_folder}", "report: {type: mlflow_model}"),
        {"check": on("report", values=("uri_folder", "mlflow_model"))},
    ),
    Case(
        "the path of an output",
        edit("pipeline.yml", "report: {type: uri_folder}", f"report: {OWN_REPORT}"),
        {"check": on("report")},
    ),
    Case(
        "the default datastore",
        edit(
            "pipeline.yml",
            "jobs:\n",
            "settings: {default_datastore: workspaceartifactstore}\njobs:\n",
        ),
        {step: on() for step in ("prep", "train", "check")},
    ),
    Case(
        "nothing, but other jobs may write where a step does",
        lambda project: None,
        {"check": on("report")},
        before=edit("pipeline.yml", "report: {type: uri_folder}", f"report: {SHARED_REPORT}"),
    ),
    Case(
        "every step is forced to run",
        edit("pipeline.yml", "jobs:\n", "settings: {force_rerun: true}\njobs:\n"),
        {step: on("force_rerun") for step in ("prep", "train", "check")},
    ),
    Case(
        "a step that is not deterministic",
        at_train("is_deterministic: false"),
        {"train": on("deterministic")},
    ),
    Case(
        "a component that is not deterministic",
        edit("train.yml", "type: command\n", "type: command\nis_deterministic: false\n"),
        {"train": on("deterministic")},
    ),
    Case(
        "an added step",
        edit("pipeline.yml", "jobs:\n", EXTRA_STEP),
        {"extra": on()},
        has_previous=False,
    ),
    Case(
        "another person",
        run_by_ada,
        {step: on("ada") for step in ("prep", "train", "check")},
        has_previous=False,
    ),
]

NOTHING_MATTERS = [
    Case("no change", lambda project: None),
    Case("tags", edit("pipeline.yml", "team: vision", "team: speech, run: 2")),
    Case("tags of a step", at_train("tags: {best: yes}")),
    Case("the display name", edit("pipeline.yml", "display_name: Lines", "display_name: Curves")),
    Case("the display name of a step", at_train("display_name: Fit")),
    Case("the description", edit("pipeline.yml", "Fits a line.", "Fits it again.")),
    Case("the description of a component", edit("prep.yml", "Joins the parts.", "Joins them.")),
    Case("the name of a component", edit("prep.yml", "name: prep\n", "name: prepare\n")),
    Case("the limits of an input's values", edit("prep.yml", "min: 1}", "min: 1, max: 900}")),
    Case("properties", edit("pipeline.yml", "tags:", "properties: {ticket: T-1}\ntags:")),
    Case("the experiment", edit("pipeline.yml", "experiment_name: lines", "experiment_name: own")),
    Case(
        "the name of a step",
        all_of(
            edit("pipeline.yml", "  train:\n", "  fit:\n"),
            edit("pipeline.yml", "jobs.train.", "jobs.fit."),
        ),
    ),
    Case("times of files", touch_everything),
    Case(
        "the order of keys",
        all_of(*map(in_order_of_the_alphabet, ("pipeline.yml", "train.yml", "prep.yml"))),
    ),
    Case("a comment in the pipeline's file", edit("pipeline.yml", "jobs:", "# steps\njobs:")),
    Case("quotes around a variable", edit("train.yml", '"2"', "2")),
    Case("quotes around a number", edit("pipeline.yml", "tolerance: 1", 'tolerance: "1"')),
    Case(
        "quotes around a command",
        rewrite("prep.yml", lambda text: re.sub("(?m)^command: (.*)$", r'command: "\1"', text)),
    ),
    Case("a file that .amlignore names", edit("src/notes/todo.md", "wider", "deeper")),
    Case("a file that .gitignore names", write("checks/scratch.tmp", "2\n")),
    Case("bytecode", write("src/model/__pycache__/net.cpython-311.pyc", "x")),
    Case("a file outside of the code", edit("README.md", "# Lines", "# Lines and curves")),
    Case(
        "code that moved as a whole",
        all_of(move("src", "code"), edit("train.yml", "code: src", "code: code")),
    ),
    Case("a component's file that moved", move_the_component_file),
    Case("a component that was registered", use_registered_component),
    Case(
        "a component that was registered again",
        all_of(
            edit("train.yml", "type: command\n", "type: command\nversion: 2\n"),
            register_next_component,
        ),
        before=use_registered_component,
    ),
    Case(
        "data that moved as a whole",
        all_of(move("data/raw", "raw"), edit("pipeline.yml", "data/raw", "raw")),
    ),
    Case("data that was registered", register_raw_data),
    Case("times of data in a datastore", touch_the_datastore, before=take_data_of_the_datastore),
    Case("a file in place of the link to it", replace_link),
    Case("the label of an environment", edit("pipeline.yml", "checking:1", "checking@latest")),
    Case(
        "defaults that are written out",
        all_of(
            edit("pipeline.yml", "path: data/raw}", "path: data/raw, mode: ro_mount}"),
            edit("pipeline.yml", "report: {type: uri_folder}", "report: {mode: rw_mount}"),
            edit(
                "pipeline.yml",
                "    code: checks",
                "    resources: {instance_count: 1}\n    code: checks",
            ),
        ),
    ),
    Case("the same data in another version", use_data(2, "data/labels.csv")),
    Case("the same packages in another version", use_environment(CHECKING)),
    Case(
        "an environment that has been built since",
        lock_jax,
        before=write("requirements.txt", "\n".join(UNLOCKED)),
    ),
    Case("a comment in the requirements", edit("requirements.txt", "torch", "# deep\ntorch")),
    Case(
        "the order of the requirements", write("requirements.txt", "tqdm==4.66.0\ntorch==2.4.0\n")
    ),
    Case(
        "the same value from another place",
        all_of(
            edit("pipeline.yml", "  seed: 7", "  seed: 7\n  rate: 0.1"),
            edit("pipeline.yml", "learning_rate: 0.1", "learning_rate: ${{parent.inputs.rate}}"),
        ),
    ),
    Case(
        "the default as a value",
        edit("pipeline.yml", "learning_rate: 0.1", "learning_rate: 0.1\n      epochs: 10"),
    ),
    Case(
        "an equal output of a step",
        edit("pipeline.yml", "jobs.train.outputs.model", "jobs.train.outputs.last"),
    ),
    Case("a secret", edit("train.yml", "hf_0123456789", "hf_9876543210")),
    Case(
        "a secret by its mark",
        all_of(edit("train.yml", "LOG_LEVEL: info", "LOG_LEVEL: debugging")),
        before=at_train("properties: {torchyard.secrets: [LOG_LEVEL]}"),
    ),
    Case("the time limit", edit("train.yml", "timeout: 3600", "timeout: 7200")),
    Case("retries", edit("pipeline.yml", "tags:", "torchyard: {retry: {max_attempts: 3}}\ntags:")),
    Case("the priority", at_train("queue_settings: {priority: high}")),
    Case("the cluster", use_wide_cluster),
    Case("a removed step", drop_check),
    Case("a nested pipeline in place of its steps", nest),
]


@pytest.fixture(scope="module")
def planted_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    made = RealServer(tmp_path_factory.mktemp("server"), clock=FakeClock())
    planted_project.count_environments_as_built(made)
    yield made
    made.stop()


@pytest.fixture
def project(planted_server: RealServer, tmp_path: Path) -> Iterator[Project]:
    server = ServedWorkspace(planted_server)
    made = Project(tmp_path / "project", server, server.client())
    yield made
    made.client.close()


def mentions(text: str, word: str) -> bool:
    """Whether it stands there as a word, `1` not being one of `1.0`, nor `2` of `2.4`."""
    return re.search(rf"(?<![\w.]){re.escape(word)}(?!\w|\.\d)", text) is not None


def faults(explanation: Explanation, blame: Blame | None, has_previous: bool) -> Iterator[str]:
    """What is wrong with what is said of a step; it must be reused when there is no blame."""
    if blame is None or explanation.is_reused:
        if blame is not None:
            yield "is reused"
        elif not explanation.is_reused:
            yield "runs again"
        elif not explanation.job.startswith("base_") or explanation.other != explanation.job:
            yield f"is job {explanation.job}, reused from {explanation.other}"
        return
    if has_previous and not explanation.other.startswith("base_"):
        yield f"is compared with `{explanation.other}`"
    differences: list[dict[str, Any]] = explanation.raw["differences"]
    said = [*explanation.reasons, *(f"{each['name']}: {each['text']}" for each in differences)]
    if not explanation.reasons:
        yield "says no reason"
    for word in (*blame.names, *blame.values):
        if not any(mentions(text, word) for text in said):
            yield f"does not say `{word}`"
    for text in said:
        if blame.names and not any(mentions(text, name) for name in blame.names):
            yield f"blames another thing: {text}"


CASES = [*CODE_MATTERS, *DATA_MATTERS, *VALUES_MATTER, *SETTINGS_MATTER, *NOTHING_MATTERS]


@pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in CASES])
def test_a_change_is_explained_and_nothing_else_runs(project: Project, case: Case) -> None:
    case.before(project)
    project.run("base")
    case.change(project)
    explanations = project.run("changed")
    found = [
        f"step {step} {fault} (reasons: {'; '.join(each.reasons)})"
        for step, each in explanations.items()
        for fault in faults(each, case.reruns.get(step), case.has_previous)
    ]
    assert not found, "\n".join(found)
    assert {*case.reruns} <= {*explanations}


def test_a_change_that_is_taken_back_runs_nothing(project: Project) -> None:
    project.run("base")
    project.edit("src/train.py", "fit()", "fix()")
    project.edit("pipeline.yml", "tolerance: 1", "tolerance: 2")
    project.run("other")
    project.edit("src/train.py", "fix()", "fit()")
    project.edit("pipeline.yml", "tolerance: 2", "tolerance: 1")
    jobs = [each.job for each in project.run("changed").values() if each.is_reused]
    assert jobs == ["base_prep", "base_train", "base_check"]


def test_an_output_that_gets_a_name_is_registered_though_its_step_is_reused(
    project: Project,
) -> None:
    project.run("base")
    project.edit("pipeline.yml", "report: {type: uri_folder}", "report: {name: checked}")
    project.run("changed")
    assert "checked" in [asset.name for asset in project.client.data.list()]
