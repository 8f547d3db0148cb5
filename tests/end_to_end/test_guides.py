"""The commands of guides, run as they stand; one that is not says which test runs it instead.

Owns: the files and names that a reader would have by then.
Leaves: guides that need another machine or an engine, and those with walk-throughs of their own
(sweeps, checkpoints, drift, from a model to an answer), to the tests beside those.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from end_to_end.yard_under_test import REPOSITORY, Yard, running_yard, wait_until
from eventually import PATIENCE

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(1800)]

_LINE = re.compile(r"^\s*(?:\$ )?((?:yard|mkdir|echo|python) .*)$")
_LOG = """
import json, os, sys, time, urllib.request
from pathlib import Path
def log(key, value, step):
    body = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": key, "value": value, "step": step,
            "timestamp": int(time.time() * 1000)}
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric",
        json.dumps(body).encode(),
        {"Content-Type": "application/json",
         "Authorization": "Bearer " + os.environ.get("MLFLOW_TRACKING_TOKEN", "")})
    urllib.request.urlopen(request).close()
if os.environ.get("RANK", "0") == "0":
    for step in range(5):
        log("train loss", 1 / (step + 1), step)
    Path("outputs").mkdir(exist_ok=True)
    Path("outputs/model.pt").write_text("weights")
"""
"""A job's script: logs five points, writes a model."""
_JOB = """
command: python train.py
code: src
environment: python
"""


def lines(page: str) -> Iterator[str]:
    """The commands in the page's blocks, fenced and indented, without what they print."""
    text = (REPOSITORY / page).read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```|((?:^    [^\n]*\n)+)", text, re.MULTILINE | re.DOTALL)
    for block in map("".join, blocks):
        typed = block.splitlines()
        if any(line.lstrip().startswith("$ ") for line in typed):
            typed = [line for line in typed if line.lstrip().startswith("$ ")]
        yield from (match[1] for line in typed if (match := _LINE.match(line)))


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text()


def typed_lines(page: str) -> list[str]:
    """Every line of the page's blocks of `sh`."""
    blocks = re.findall(
        r"^```sh\n(.*?)^```", (REPOSITORY / page).read_text(), re.MULTILINE | re.DOTALL
    )
    return [line for block in blocks for line in block.splitlines()]


def named_files(page: str, folder: Path) -> None:
    text = (REPOSITORY / page).read_text()
    for name, content in re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```", text, re.DOTALL):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)


def run(yard: Yard, line: str, folder: Path) -> str:
    """What a shell's line prints."""
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-ec", line],
        cwd=folder,
        env={**yard.variables, "PATH": binaries, "SHELL": "/bin/true", "HF_TOKEN": "hf_x"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            out, errors = process.communicate(timeout=600 * PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, f"{line}\n{out.decode()}{errors.decode()}"
    return out.decode()


def walk(
    yard: Yard, folder: Path, page: str, names: dict[str, str], elsewhere: dict[str, str]
) -> list[str]:
    """Run the page's commands with these names in place of the page's; returns what was run.

    `elsewhere` holds the beginnings of the commands that run in another test, and which that is.
    """
    typed = list(lines(page))
    unused = [start for start in elsewhere if not any(line.startswith(start) for line in typed)]
    assert unused == []
    for test in elsewhere.values():
        assert not test.startswith("tests/") or (REPOSITORY / test).exists(), test
    here = [line for line in typed if not line.startswith(tuple(elsewhere))]
    for line in here:
        for name, meant in names.items():
            line = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", meant, line)
        run(yard, line, folder)
    return here


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a job of its own."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(_LOG)
    (tmp_path / "job.yml").write_text(_JOB)
    return tmp_path


@pytest.mark.usefixtures("torch_environment")
def test_the_readmes_first_commands(yard: Yard, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "examples/digits", tmp_path / "examples/digits")
    assert walk(yard, tmp_path, "README.md", {}, {})


@pytest.mark.usefixtures("resumable_environment")
def test_the_tutorial(yard: Yard, tmp_path: Path) -> None:
    page = "docs/tutorial.md"
    page_job = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / page).read_text(), re.DOTALL)
    example = (REPOSITORY / "examples/start/job.yml").read_text()
    assert [example.endswith(job) for job in page_job] == [True]
    elsewhere = ("git ", "python3 ", "pip ")  # `make setup` and tests of the wheel install it
    typed = [line for line in typed_lines(page) if not line.startswith(elsewhere)]
    folder = tmp_path
    printed: dict[str, str] = {}
    try:
        for line in typed:
            if line.startswith("cd "):
                folder = folder / line[len("cd ") :]
                named_files(page, folder)
                continue
            if line.startswith("yard job preempt"):
                wait_until(lambda: has_come_to(yard, "long-run", 100), 240, "it trains")
            if not line.startswith("yard server stop"):  # the session's other tests use it
                printed[line] = run(yard, line, folder)
    finally:
        for endpoint in yard.get("online-endpoints")["value"]:
            yard("online-endpoint", "delete", "-n", endpoint["name"], "--yes")
    assert len(printed) == 15
    assert (folder / "artifacts/outputs/model.pt").stat().st_size > 10_000
    yard.completed("long-run")
    files = [file["path"] for file in yard.get("jobs/long-run/files")["value"]]
    assert any(path.startswith("attempt-1/") for path in files)
    resumed = printed["yard job logs -n long-run"]
    assert "epoch 1 " not in resumed and "epoch 600 " in resumed
    children = json.loads(yard("job", "list", "-p", "tuning", "-o", "json"))
    assert [child["status"] for child in children] == ["Completed"] * 4
    (answer,) = [text for line, text in printed.items() if "invoke" in line]
    assert json.loads(answer) == [0, 1]


def has_come_to(yard: Yard, job: str, step: int) -> bool:
    with contextlib.suppress(OSError):  # nothing is logged yet
        points = yard.get(f"jobs/{job}/metrics/history?key=loss")["points"]
        return any(reached >= step for reached, _, _ in points)
    return False


def test_a_job_of_your_own(yard: Yard, folder: Path) -> None:
    page = "docs/guides/first-job.md"
    text = (REPOSITORY / page).read_text()
    (job,) = re.findall(r"```yaml\n(command.*?)```", text, re.DOTALL)
    (folder / "job.yml").write_text(job)
    (folder / "src/requirements.txt").touch()
    (folder / "requirements.txt").write_text("# nothing but Python\n")
    (folder / "data").mkdir()
    (folder / "data/rows.csv").write_text("1\n")
    yard("job", "create", "-f", str(folder / "job.yml"), "--set", "name=first", "--stream")
    yard("job", "create", "-f", str(folder / "job.yml"), "--set", "name=second", "--stream")
    yard("environment", "create", "-n", "plain", "--set", "pip_requirements=iniconfig==2.0.0")
    names = {"NAME": "first", "OTHER": "second", "MODEL": "digits", "ENVIRONMENT": "plain"}
    elsewhere = {
        "yard init": "tests/smoke/test_training.py",
        "yard job cancel": "test_a_job_is_canceled",
    }
    assert walk(yard, folder, page, names, elsewhere)
    assert (folder / "artifacts/outputs/model.pt").read_text() == "weights"
    assert "train loss" in (folder / "both.csv").read_text()


def test_a_job_is_canceled(yard: Yard, folder: Path) -> None:
    (folder / "src/train.py").write_text("import time; time.sleep(600)")
    (line,) = [line for line in lines("docs/guides/first-job.md") if "job cancel" in line]
    yard("job", "create", "-f", str(folder / "job.yml"), "--set", "name=long")
    wait_until(lambda: yard.job("long")["status"] == "Running", 120, "it runs")
    run(yard, line.replace("NAME", "long"), folder)
    wait_until(lambda: yard.job("long")["status"] == "Canceled", 60, "it is canceled")


def test_metrics(yard: Yard, folder: Path) -> None:
    for name in ("slow-curve", "quick-curve", "digits-2"):
        yard(
            "job", "create", "-f", str(folder / "job.yml"), "--stream",
            "--set", f"name={name}", "experiment_name=curves",
        )  # fmt: skip
    assert walk(yard, folder, "docs/guides/metrics.md", {}, {})
    assert "train loss" in (folder / "points.csv").read_text()


def test_clusters(yard: Yard, folder: Path) -> None:
    page = "docs/guides/clusters.md"
    text = (REPOSITORY / page).read_text()
    (cluster,) = re.findall(r"```yaml\n(\$schema.*?)```", text, re.DOTALL)
    (folder / "cluster.yml").write_text(cluster)
    elsewhere = {
        "yard compute attach lab": "tests/slurm",
        "yard compute attach home": "tests/ray",
        "yard compute check lab": "tests/slurm",
        "yard compute list-nodes lab": "tests/slurm",
    }
    assert walk(yard, folder, page, {}, elsewhere)


def test_who_runs_next(yard: Yard, folder: Path) -> None:
    page = "docs/guides/scheduling.md"
    yard("job", "create", "-f", str(folder / "job.yml"), "--set", "name=given-back")
    # It runs until it is preempted.
    (folder / "src/train.py").write_text(
        "import os, time\ntime.sleep(600 if os.environ['TORCHYARD_ATTEMPT_NUMBER'] == '1' else 0)\n"
    )
    yard("job", "create", "-f", str(folder / "job.yml"), "--set", "name=preempted")
    wait_until(lambda: yard.job("preempted")["status"] == "Running", 120, "it runs")
    assert walk(yard, folder, page, {"brave-otter": "preempted"}, {})


def test_environments(yard: Yard, folder: Path) -> None:
    vision = """name: vision
python: "3.11"
pip_requirements: [pytest==8.4.2]
"""
    (folder / "vision.yml").write_text(vision)
    (folder / "env.yml").write_text(vision.replace("pytest==8.4.2", "iniconfig==2.1.0"))
    (folder / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    yard("environment", "create", "-f", str(folder / "vision.yml"), "--set", "name=plain")
    names = {"acpt-pytorch-2.13-cpu": "plain", "/opt/acpt": str(folder / "acpt")}
    elsewhere = {
        "yard environment export -n vision --image vision.tar --base": (
            "tests/containers/test_exported_images.py"
        ),
        "yard environment export -n vision --push": "tests/containers/test_pushed_images.py",
        "yard job create": "refused, as the page says",
    }
    assert walk(yard, folder, "docs/guides/environments.md", names, elsewhere)


def test_an_endpoints_deployments(yard: Yard, folder: Path) -> None:
    page = "docs/guides/endpoints.md"
    named_files(page, folder)
    green = (folder / "blue.yml").read_text().replace("name: blue", "name: green")
    (folder / "green.yml").write_text(green)
    (folder / "src/train.py").write_text(
        "from pathlib import Path\nPath('outputs/model').mkdir(parents=True)\n"
        "Path('outputs/model/weight.json').write_text('3')\n"
    )
    run(yard, "yard job create -f job.yml --set name=maker --stream", folder)
    try:
        typed = list(lines(page))
        for line in typed:
            if line.startswith("yard model deploy"):
                made = "azureml://jobs/maker/outputs/artifacts/paths/outputs/model"
                run(yard, f"yard model create -n digits -p {made}", folder)
            if line.startswith("yard job metrics"):
                show = next(each for each in typed if "instances[0].job" in each)
                line = line.replace("JOB", run(yard, show, folder).strip())
            run(yard, line, folder)
        assert len(typed) == 13
    finally:
        for endpoint in yard.get("online-endpoints")["value"]:
            yard("online-endpoint", "delete", "-n", endpoint["name"], "--yes")


def test_into_a_job(yard: Yard, folder: Path) -> None:
    page = "docs/guides/into-a-job.md"
    services = yaml.safe_load(re.findall(r"```yaml\n(services.*?)```", text_of(page), re.DOTALL)[0])
    own = {name: services["services"][name] for name in ("app", "files")}
    (folder / "job.yml").write_text(
        yaml.safe_dump(
            {
                **yaml.safe_load(_JOB),
                "command": "sleep 600",
                "distribution": {"type": "pytorch", "process_count_per_instance": 2},
                "services": own,
            }
        )
    )
    yard("job", "create", "-f", str(folder / "job.yml"), "--set", "name=live")
    wait_until(lambda: yard.job("live")["status"] == "Running", 120, "it runs")
    elsewhere = {
        "yard job show-services -n brave-otter --open": "tests/interactive/test_job_services.py",
        "yard compute": "tests/instances",
    }
    walk(yard, folder, page, {"brave-otter": "live", "nvidia-smi": "true"}, elsewhere)


def test_a_server_for_a_team(folder: Path) -> None:
    elsewhere = {
        "yard login": "tests/cli/commands/test_people_commands.py",
        "yard user remove": "tests/workspaces/test_people.py",
        "yard quota approve": "tests/cli/commands/test_people_commands.py",
        "yard online-endpoint update -n digits --take-over": "tests/endpoints",
        "yard online-deployment update -n blue -e digits --take-over": "tests/endpoints",
        "yard batch-endpoint update": "tests/batch_endpoints",
        "yard environment release": "tests/releases",
        "yard compute create -f annas-lab.yml": "tests/instances",
    }
    with running_yard("guides-people") as yard:
        assert walk(yard, folder, "docs/guides/shared-server.md", {}, elsewhere)
        audited = json.loads(yard("audit", "-w", "vision", "-o", "json"))
    assert any("quota" in record["path"] for record in audited)


def test_coming_from_azure_ml(yard: Yard, folder: Path) -> None:
    """The script is the reader's own; tests/contracts_azure has some that import Azure's SDKs."""
    (folder / "submit.py").write_text(
        "import json, os, pathlib\n"
        "names = json.loads(pathlib.Path('.azureml/config.json').read_text())\n"
        "assert names['workspace_name'] == 'default', names\n"
        "assert os.environ['IDENTITY_ENDPOINT'].startswith('https://')\n"
    )
    assert len(walk(yard, folder, "docs/coming-from-azure-ml.md", {}, {})) == 4


def test_watching_a_server(folder: Path) -> None:
    with running_yard("guides-watched") as yard:
        assert walk(yard, folder, "docs/guides/monitoring.md", {}, {})


def test_backups_and_upgrades(folder: Path) -> None:
    page = "docs/guides/upgrade.md"
    (folder / "passphrase").write_text("correct horse battery staple\n")
    (folder / "passphrase").chmod(0o600)
    names = {"/mnt/backups": str(folder), "~/backup.passphrase": str(folder / "passphrase")}
    with running_yard("guides-upgrade") as yard:
        assert walk(yard, folder, page, names, {})
    assert (folder / "before.tar").exists()


def test_a_page_and_a_cluster_that_is_checked(yard: Yard, folder: Path) -> None:
    assert walk(yard, folder, "docs/guides/web-page.md", {"yard ui": "yard ui --no-open"}, {})
    assert walk(yard, folder, "docs/guides/preflight.md", {}, {})
