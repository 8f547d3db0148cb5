"""What a trial costs beyond itself: a sweep beside Ray Tune and plain Optuna in processes.

    python benchmarks/sweep_overhead.py [--rounds 3] [--trials 100] [--peers PYTHON]

A trial is a program that takes 10 ms once it runs, and reports one value; 2 run at once. Its
overhead is the sweep's wall time, times 2, through the number of trials, less what the program
takes by itself, two at once. For Ray Tune and Optuna a trial is a function. `--peers` is a Python
that has `optuna` and `ray[tune]`; what it lacks is left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from figures import YARD, Case, compare, run, temporary_yard

CONCURRENT = 2
SCRIPT = """
import http.client, json, os, sys, time
from urllib.parse import urlsplit
lr = float(sys.argv[1])
time.sleep(0.01)
if "MLFLOW_RUN_ID" in os.environ:
    place = urlsplit(os.environ["MLFLOW_TRACKING_URI"])
    point = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "loss", "value": lr,
             "timestamp": int(time.time() * 1000), "step": 0}
    line = http.client.HTTPConnection(place.hostname, place.port)
    line.request("POST", "/api/2.0/mlflow/runs/log-metric", json.dumps(point),
                 {"Content-Type": "application/json",
                  "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]})
    assert line.getresponse().status == 200
"""
OPTUNA = """
import multiprocessing, sys, time
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
def objective(lr):
    time.sleep(0.01)
    return lr
if __name__ == "__main__":
    trials = int(sys.argv[1])
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    with multiprocessing.Pool(2, maxtasksperchild=1) as pool:
        pool.apply(objective, (0.1,))
        begun = time.monotonic()
        live = []
        for _ in range(trials):
            if len(live) == 2:
                trial, result = live.pop(0)
                study.tell(trial, result.get())
            trial = study.ask()
            lr = trial.suggest_float("lr", 0.01, 0.1)
            live.append((trial, pool.apply_async(objective, (lr,))))
        for trial, result in live:
            study.tell(trial, result.get())
        print(time.monotonic() - begun)
"""
RAY = """
import os, sys, time
os.environ.update(RAY_AIR_NEW_OUTPUT="0", RAY_USAGE_STATS_ENABLED="0")
import ray
from ray import tune
def objective(config):
    time.sleep(0.01)
    return {"loss": config["lr"]}
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
trials = int(sys.argv[1])
tuner = tune.Tuner(objective, param_space={"lr": tune.uniform(0.01, 0.1)},
                   tune_config=tune.TuneConfig(num_samples=trials, max_concurrent_trials=2),
                   run_config=tune.RunConfig(verbose=0, storage_path=sys.argv[2]))
begun = time.monotonic()
tuner.fit()
print(time.monotonic() - begun)
"""


def own_process_s(folder: Path, trials: int) -> float:
    """Seconds a trial's program takes by itself, two at once."""
    begun = time.monotonic()
    for _ in range(trials // CONCURRENT):
        pair = [
            subprocess.Popen([sys.executable, "train.py", "0.1"], cwd=folder)
            for _ in range(CONCURRENT)
        ]
        for process in pair:
            process.wait()
    return (time.monotonic() - begun) * CONCURRENT / trials


def by_sweep(folder: Path, variables: Mapping[str, str], trials: int) -> dict[str, float]:
    alone_s = own_process_s(folder, trials)
    command: list[str | Path] = [YARD, "job", "sweep", "-f", "job.yml", "--goal", "minimize:loss"]
    command += ["--param", "lr=uniform:0.01,0.1", "--trials", str(trials)]
    command += ["--concurrent", str(CONCURRENT), "--seed", "1", "-o", "json"]
    name = json.loads(run(command, variables, folder))["name"]
    run([YARD, "job", "wait", name], variables, folder)
    job = json.loads(run([YARD, "job", "show", "-n", name, "-o", "json"], variables, folder))
    assert job["status"] == "Completed", job["error"]
    return _figures(float(job["duration_s"]), trials, alone_s)


def by_function(
    python: Path, script: str, folder: Path, trials: int, *arguments: str
) -> dict[str, float]:
    (folder / "peer.py").write_text(script)
    ended = subprocess.run(
        [python, "peer.py", str(trials), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return _figures(float(ended.stdout.split()[-1]), trials, 0.01)


def _figures(wall_s: float, trials: int, alone_s: float) -> dict[str, float]:
    per_trial_s = wall_s * CONCURRENT / trials
    return {"sweep_s": wall_s, "overhead_s": per_trial_s - alone_s, "program_s": alone_s}


def _has(python: Path, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--peers", type=Path, default=Path(sys.executable))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text, temporary_yard() as variables:
        folder = Path(text)
        (folder / "train.py").write_text(SCRIPT)
        (folder / "job.yml").write_text(
            "command: python train.py ${{search_space.lr}}\ncode: .\nenvironment: python\n"
        )
        by_sweep(folder, variables, 4)  # the environment is built once
        trials = options.trials
        cases = [Case("torchyard", partial(by_sweep, folder, variables, trials))]
        if _has(options.peers, "optuna"):
            act = partial(by_function, options.peers, OPTUNA, folder, trials)
            cases.append(Case("Optuna in processes", act))
        if _has(options.peers, "ray.tune"):
            storage = str(folder / "ray")
            act = partial(by_function, options.peers, RAY, folder, trials, storage)
            cases.append(Case("Ray Tune", act))
        compare(f"{trials} trials of 10 ms, {CONCURRENT} at once", cases, options.rounds)


if __name__ == "__main__":
    main()
