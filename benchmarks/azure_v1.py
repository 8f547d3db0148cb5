"""SDK v1's `Workspace.from_config` to the first line of a run's log, beside `yard`'s own job.

    python benchmarks/azure_v1.py --client PYTHON [--rounds 5]

PYTHON is one of an environment that has azureml-core (`make azure-clients` makes one). Each try is
a process that begins, finds its workspace, submits a script and watches it; its own imports are
told apart. `seen` is when the client printed the line, `written` when the script wrote it: the
client looks again after seconds of its own choosing. The script then sleeps for five seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from figures import YARD, Case, compare, temporary_yard

# The client shows no log of a run that has ended before it looks first.
TRAIN = """import time
print("FIRST", time.time(), flush=True)
time.sleep(5)
"""
CLIENT = """
import io, json, sys, time
began = time.time()
import warnings
warnings.simplefilter("ignore")
from azureml.core import Environment, Experiment, ScriptRunConfig, Workspace
imported = time.time()

class Watched(io.TextIOBase):
    seen = written = 0.0
    def write(self, text):
        if "FIRST" in text and not self.seen:
            self.seen = time.time()
            self.written = float(text.split("FIRST")[1].split()[0])
        return len(text)

ws = Workspace.from_config()
found = time.time()
environment = Environment.get(ws, "python")
asked = ScriptRunConfig(sys.argv[1], "train.py", compute_target="local-cluster",
                        environment=environment)
run = Experiment(ws, "bench").submit(asked)
submitted = time.time()
said, sys.stdout = sys.stdout, Watched()
run.wait_for_completion(show_output=True)
seen, sys.stdout = sys.stdout, said
ended = time.time()
print(json.dumps({
    "import_s": imported - began,
    "from_config_s": found - imported,
    "get_and_submit_s": submitted - found,
    "from_config_to_written_s": seen.written - imported,
    "from_config_to_seen_s": seen.seen - imported,
    "from_config_to_end_s": ended - imported,
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", required=True, help="a Python that has azureml-core")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="azure-v1-") as folder, temporary_yard() as variables:
        work_folder = Path(folder)
        (work_folder / "code").mkdir()
        (work_folder / "code" / "train.py").write_text(TRAIN)
        write = [str(YARD), "workspace", "config", "--path", folder]
        subprocess.run(write, env=variables, check=True, capture_output=True)
        cases = [
            Case("azureml-core", partial(by_client, arguments.client, work_folder, variables)),
            Case("yard", partial(by_yard, work_folder, variables)),
        ]
        # The first of each makes what later ones find: the environment, the door with TLS.
        for case in cases:
            case.measure()
        compare("From the workspace to the first line of a run's log", cases, arguments.rounds)


def by_client(python: str, folder: Path, variables: Mapping[str, str]) -> Mapping[str, float]:
    shell = subprocess.run(
        [str(YARD), "client-env", "--shell", "json"],
        env=dict(variables), check=True, capture_output=True, text=True,
    )  # fmt: skip
    environ = {name: text for name, text in os.environ.items() if not name.startswith("AZURE")}
    done = subprocess.run(
        [python, "-c", CLIENT, str(folder / "code")],
        cwd=folder, env={**environ, **json.loads(shell.stdout)}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def by_yard(folder: Path, variables: Mapping[str, str]) -> Mapping[str, float]:
    job = folder / "job.yml"
    job.write_text("command: python train.py\ncode: code\nenvironment: python@latest\n")
    began = time.time()
    process = subprocess.Popen(
        [str(YARD), "job", "create", "-f", str(job), "--stream"],
        env=dict(variables), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    written = seen = 0.0
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("FIRST") and not seen:
                seen, written = time.time(), float(line.split()[1])
    if process.returncode or not seen:
        raise SystemExit(f"yard ended with {process.returncode}")
    return {
        "from_config_to_written_s": written - began,
        "from_config_to_seen_s": seen - began,
        "from_config_to_end_s": time.time() - began,
    }


if __name__ == "__main__":
    main()
