"""Run the example of ASHA on the digits with real jobs, and note who came to which rung.

    python tools/run_sweep_rungs.py > docs/transcripts/sweep-rungs.md

A fresh server is started for it, and stopped at the end.

Owns: the page: the table of rungs, and from which step the promoted trials went on.
Leaves: the sweep to examples/sweep, running it to the server.
Always: a promoted trial that began at step 0, or whose steps are there twice, fails the program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from torchyard import Client

ROOT = Path(__file__).resolve().parent.parent
NAME = "digits-asha"
EPOCHS, STEPS = 27, 45
_HEAD = """# ASHA on the digits: the table of rungs

Made by `python tools/run_sweep_rungs.py`: [examples/sweep](../../examples/sweep/sweep.yml), \
unchanged, on a fresh server on a machine with {cores} cores. Each of {count} trials learns \
scikit-learn's digits for 3 epochs and pauses; of those at a rung the best third go on, to 9 and \
to 27 epochs. A paused trial holds no node. A promoted one goes on from its checkpoint, saved when \
it was stopped: the last table has its step, and `torchyard.train` logs no epoch twice.

    $ yard job create -f examples/sweep/sweep.yml -n {name} --stream
    $ yard job show -n {name}
    $ yard job trials -n {name} --rungs

The sweep is {status} after {seconds:.0f} s. Its best trial is `{best}`, accuracy {score}. \
Together its trials learned {epochs} of {all_epochs} epochs.

## Rungs

An epoch has {steps} steps, and each logs the accuracy once: that is an interval.

| interval | trial | accuracy | rank | decision |
|---|---|---|---|---|
"""
_PROMOTED = """
## Promoted trials

| trial | attempts | the last one went on from step | epochs logged | steps of the series |
|---|---|---|---|---|
"""


def main() -> None:
    top = Path(tempfile.mkdtemp(prefix="sweep-rungs-"))
    os.environ["TORCHYARD_HOME"] = str(top / "home")
    yard = Path(sys.executable).with_name("yard")
    try:
        file = str(ROOT / "examples/sweep/sweep.yml")
        create: list[str | Path] = [yard, "job", "create", "-f", file, "-n", NAME, "--stream"]
        subprocess.run(create, check=True, stdout=sys.stderr)
        sys.stdout.write(_page(Client()))
    finally:
        subprocess.run([yard, "server", "stop"], stdout=subprocess.DEVNULL)
        shutil.rmtree(top, ignore_errors=True)


def _page(client: Client) -> str:
    sweep, trials = client.jobs.get(NAME), client.sweeps.trials(NAME)
    rungs = client.sweeps.rungs(NAME)
    promoted = dict.fromkeys(rung.trial for rung in rungs if rung.decision == "promoted")
    rows = [_promoted(client, name) for name in promoted]
    assert rows and trials.best is not None, rungs
    head = _HEAD.format(
        cores=os.cpu_count(),
        count=len(trials.trials),
        name=NAME,
        status=sweep.status,
        seconds=sweep.duration_s,
        best=trials.best.name,
        score=f"{trials.best.value:.4f}",
        epochs=sum(trial.raw["intervals"] for trial in trials.trials),
        all_epochs=EPOCHS * len(trials.trials),
        steps=STEPS,
    )
    table = "".join(
        f"| {rung.interval} | `{rung.trial}` | {rung.value:.4f} | {rung.rank} of {rung.reached} "
        f"| {rung.decision} |\n"
        for rung in rungs
    )
    return head + table + _PROMOTED + "".join(rows)


def _promoted(client: Client, name: str) -> str:
    """The row of a trial that went on."""
    begun = re.search(r"resumed from (\d+)", client.jobs.logs(name))
    assert begun is not None and int(begun[1]) >= 3 * STEPS, name
    steps = [point.step for point in client.jobs.points(name, ["accuracy"])]
    assert steps == [STEPS * number for number in range(1, len(steps) + 1)], (name, steps)
    attempts = len(client.jobs.get(name).raw["attempts"])
    return f"| `{name}` | {attempts} | {begun[1]} | {len(steps)} | {steps[0]} to {steps[-1]} |\n"


if __name__ == "__main__":
    main()
