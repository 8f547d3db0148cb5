"""A job by azure-ai-ml and by `yard`: from asking to its first line, from its last line to the end.

    python benchmarks/azure_jobs.py --client PYTHON [--rounds 5] [--seconds 5]

PYTHON is one of an environment that has azure-ai-ml (`make azure-clients` makes some). Its `stream`
asks again every two seconds at the least; that is the client's own pace. Then how many times a
second one job is told, by Azure's path and by ours, to one client and to eight at once.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from figures import YARD, Case, compare, temporary_yard

AZURE = (
    "/subscriptions/local/resourceGroups/torchyard/providers"
    "/Microsoft.MachineLearningServices/workspaces/default/jobs"
)
OURS = "/v1/workspaces/default/jobs"
TRAIN = """import time
print("FIRST", flush=True)
time.sleep(5)
print("LAST", time.time(), flush=True)
"""
CLIENT = """
import io, json, sys, time
from azure.ai.ml import MLClient, command
from azure.identity import DefaultAzureCredential

class Watched(io.TextIOBase):
    first = last = 0.0
    def write(self, text):
        if text.startswith("FIRST"):
            self.first = time.time()
        if text.startswith("LAST"):
            self.last = float(text.split()[1])
        return len(text)

client = MLClient(DefaultAzureCredential(), "local", "torchyard", "default")
job = command(code=sys.argv[1], command="python train.py", environment="python@latest",
              compute="local", experiment_name="bench")
client.workspaces.get("default")
said, sys.stdout = sys.stdout, Watched()
began = time.time()
made = client.jobs.create_or_update(job)
created = time.time()
client.jobs.stream(made.name)
ended, seen = time.time(), sys.stdout
print(json.dumps({"create, s": created - began, "first line, s": seen.first - began,
                  "after the last, s": ended - seen.last}), file=said)
"""


def by_azure(
    client: str, script: Path, code: Path, variables: Mapping[str, str]
) -> dict[str, float]:
    command: list[str | Path] = [YARD, "client-env", "--run", "--", client]
    command += ["-W", "ignore", script, code]
    done = subprocess.run(command, env=dict(variables), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def by_yard(job: Path, variables: Mapping[str, str]) -> dict[str, float]:
    command = [str(YARD), "job", "create", "-f", str(job), "--stream"]
    began, first, last = time.time(), 0.0, 0.0
    with subprocess.Popen(
        command, env=dict(variables), stdout=subprocess.PIPE, text=True, bufsize=1
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if "FIRST" in line:
                first = time.time()
            if "LAST" in line:
                last = float(line.split()[-1])
    return {"first line, s": first - began, "after the last, s": time.time() - last}


def told_per_s(url: str, token: str, path: str, clients: int, seconds: float) -> float:
    """Answers a second, over connections that are kept."""
    counts: list[int] = []

    def ask() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        headers, count = {"Authorization": f"Bearer {token}"}, 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            count += 1
        counts.append(count)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def rates(url: str, token: str, path: str, seconds: float) -> dict[str, float]:
    return {
        f"GET job, {clients} client{'s' * (clients > 1)}, 1/s": told_per_s(
            url, token, path, clients, seconds
        )
        for clients in (1, 8)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", required=True, help="a Python that has azure-ai-ml")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    with temporary_yard() as variables, tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "src").mkdir()
        (here / "src" / "train.py").write_text(TRAIN)
        (here / "client.py").write_text(CLIENT)
        job = here / "job.yml"
        job.write_text("command: python train.py\ncode: src\nenvironment: python@latest\n")
        by_yard(job, variables)  # the environment is built once
        compare(
            "From asking for a job to its end",
            [
                Case("azure-ai-ml", partial(
                    by_azure, arguments.client, here / "client.py", here / "src", variables
                )),
                Case("yard job create --stream", partial(by_yard, job, variables)),
            ],
            arguments.rounds,
        )  # fmt: skip
        home = Path(variables["TORCHYARD_HOME"])
        server = json.loads((home / "server.json").read_text())
        token = (home / "token").read_text().strip()
        command = [str(YARD), "job", "list", "-o", "json"]
        name = json.loads(subprocess.check_output(command, env=variables))[0]["name"]
        print(f"one job of {os.cpu_count()} cores' server, by plain HTTP")
        compare(
            "Telling one job",
            [
                Case("Azure's path", partial(
                    rates, server["url"], token, f"{AZURE}/{name}", arguments.seconds
                )),
                Case("our path", partial(
                    rates, server["url"], token, f"{OURS}/{name}", arguments.seconds
                )),
            ],
            3,
        )  # fmt: skip


if __name__ == "__main__":
    main()
