"""Real jobs to look at: one that learns on two nodes, one that fails, one that is hostile.

Owns: their documents; a model of the first, data, an endpoint. Leaves: waiting for jobs to tests.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from end_to_end.yard_under_test import Yard

SCRIPTS = Path(__file__).with_name("scripts")
HOSTILE = '<script>window.hacked=9</script>"><img src=x onerror="window.hacked=10">'


def submit(yard: Yard, folder: Path, document: dict[str, Any]) -> str:
    """The job's name; `folder` takes the job file."""
    file = folder / f"{document.get('name', 'job')}.yml"
    file.write_text(json.dumps(_with_scripts(document)))
    return str(json.loads(yard("job", "create", "-f", str(file), "-o", "json"))["name"])


def _with_scripts(document: dict[str, Any]) -> dict[str, Any]:
    if "trial" in document or "jobs" in document:
        return document
    return {"environment": "python", "code": str(SCRIPTS), **document}


def changed_scripts(folder: Path) -> Path:
    """A copy of the scripts that differs in a line."""
    copy = shutil.copytree(SCRIPTS, folder / "scripts", dirs_exist_ok=True)
    script = copy / "learn.py"
    script.write_text(script.read_text().replace("draw.gauss(0, 0.8)", "draw.gauss(0, 0.9)"))
    return copy


def learning(name: str, lr: float = 0.5, **inputs: float) -> dict[str, Any]:
    """Two nodes of a rank each, that average their gradients."""
    job_inputs = {"lr": lr, "steps": 60, "pause": 0.02, "fail_at": -1, **inputs}
    return {
        "name": name,
        "display_name": f"logistic lr={lr:g}",
        "experiment_name": "logistic",
        "command": "python learn.py --lr ${{inputs.lr}} --steps ${{inputs.steps}}"
        " --pause ${{inputs.pause}} --fail-at ${{inputs.fail_at}}",
        "inputs": job_inputs,
        "resources": {"instance_count": 2},
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
        "tags": {"team": "vision"},
    }


def sweep(name: str) -> dict[str, Any]:
    """Four trials of `learning`, on a rank each; the policy looks at no interval that early."""
    return {
        "name": name,
        "type": "sweep",
        "display_name": "logistic search",
        "experiment_name": "logistic search",
        "trial": {
            "command": "python learn.py --lr ${{search_space.lr}} --steps ${{search_space.steps}}"
            " --pause 0 --fail-at -1",
            "code": str(SCRIPTS),
            "environment": "python",
            "distribution": {"type": "pytorch", "process_count_per_instance": 1},
        },
        "search_space": {
            "lr": {"type": "uniform", "min_value": 0.05, "max_value": 0.5},
            "steps": {"type": "choice", "values": [10, 20, 30]},
        },
        "sampling_algorithm": {"type": "random", "seed": 7},
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 4, "max_concurrent_trials": 2},
        "early_termination": {"type": "bandit", "slack_factor": 0.1, "delay_evaluation": 1000},
    }


def asha(name: str) -> dict[str, Any]:
    """Three trials with rungs at 2 and 4 of their 8 values."""
    document = sweep(name)
    del document["early_termination"]
    command = document["trial"]["command"].replace("${{search_space.steps}}", "8")
    return {
        **document,
        "display_name": "logistic rungs",
        "trial": {**document["trial"], "command": command},
        "search_space": {"lr": document["search_space"]["lr"]},
        "limits": {"max_total_trials": 3, "max_concurrent_trials": 2},
        "torchyard": {
            "early_termination": {
                "type": "asha",
                "min_intervals": 2,
                "max_intervals": 8,
                "reduction_factor": 2,
            }
        },
    }


def pipeline(name: str, features: str = "squares") -> dict[str, Any]:
    """Five steps; of two such pipelines the second reuses `prepare`, and more where `features` is
    the same.
    """

    def step(text: str, *takes: str) -> dict[str, Any]:
        inputs = {each: f"${{{{parent.jobs.{each}.outputs.data}}}}" for each in takes}
        read = "".join(f" ${{{{inputs.{each}}}}}/made.txt" for each in takes)
        return {
            "command": f"cat{read or ' /dev/null'} > ${{{{outputs.data}}}}/made.txt"
            f" && echo {text} >> ${{{{outputs.data}}}}/made.txt",
            "environment": "python",
            "inputs": inputs,
            "outputs": {"data": {"type": "uri_folder"}},
        }

    return {
        "name": name,
        "type": "pipeline",
        "display_name": f"digits from {features}",
        "experiment_name": "digits",
        "jobs": {
            "prepare": step("rows"),
            "features": step(features, "prepare"),
            "baseline": step("mean", "features"),
            "train": step("weights", "features"),
            "report": step("table", "baseline", "train"),
        },
    }


def hostile(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "display_name": HOSTILE,
        "experiment_name": "hostile",
        "description": HOSTILE,
        "command": f"python hostile.py && echo '{HOSTILE}'",
        "inputs": {"text": HOSTILE},
        "environment_variables": {"MARKUP": HOSTILE},
        "tags": {HOSTILE: HOSTILE, "link": "javascript:window.hacked=11"},
    }


def register_assets(yard: Yard, job: str, description: str = HOSTILE) -> None:
    """The model `classifier`, which `job` made, and the data `scripts`, with such words."""
    outputs = f"azureml://jobs/{job}/outputs/artifacts/paths/outputs/"
    yard("model", "create", "-n", "classifier", "-p", outputs, "--description", description)
    scripts = ["-n", "scripts", "-p", str(SCRIPTS), "--type", "uri_folder"]
    yard("data", "create", *scripts, "--description", description, "--tags", f"note={description}")


def deploy(yard: Yard, folder: Path, name: str) -> None:
    """An endpoint with one deployment, which answers what it is asked and a hostile text."""
    code = folder / "scoring"
    code.mkdir()
    (code / "score.py").write_text(
        "def init():\n    pass\n\n"
        "def run(raw_data):\n    assert 'fail' not in raw_data\n"
        f"    return raw_data + {HOSTILE!r}\n"
    )
    document = {
        "name": "blue",
        "endpoint_name": name,
        "code_configuration": {"code": "./scoring", "scoring_script": "score.py"},
        "environment": {"conda_file": {"dependencies": ["python=3.11", "pip"]}},
    }
    (folder / "blue.yml").write_text(json.dumps(document))
    yard("online-endpoint", "create", "-n", name, "--set", f"description={HOSTILE}")
    yard("online-deployment", "create", "-f", str(folder / "blue.yml"), "--all-traffic")


def deploy_batch(yard: Yard, folder: Path, name: str) -> str:
    """A batch endpoint with one deployment, and the job of its one invocation."""
    code = folder / "batch-scoring"
    code.mkdir()
    (code / "score.py").write_text(
        "def init():\n    pass\n\ndef run(mini_batch):\n    return [path for path in mini_batch]\n"
    )
    (folder / "weights").mkdir()
    (folder / "weights" / "weight.txt").write_text("3")
    (folder / "numbers").mkdir()
    (folder / "numbers" / "a.txt").write_text("1")
    document = {
        "name": "triple",
        "endpoint_name": name,
        "model": {"path": "./weights"},
        "code_configuration": {"code": "./batch-scoring", "scoring_script": "score.py"},
        "environment": "python",
        "compute": "azureml:local",
        "settings": {"mini_batch_size": 7},
    }
    (folder / "triple.yml").write_text(json.dumps(document))
    yard("batch-endpoint", "create", "-n", name, "--set", f"description={HOSTILE}")
    yard("batch-deployment", "create", "-f", str(folder / "triple.yml"))
    job = f"{name}-first"
    data = str(folder / "numbers")
    yard("batch-endpoint", "invoke", "-n", name, "--input", data, "--job-name", job)
    yard.completed(job)
    return job
