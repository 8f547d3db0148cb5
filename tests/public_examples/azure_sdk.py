"""Run public command job files through azure-ai-ml's load_job and through `yard job create`.

    python tests/public_examples/azure_sdk.py <folder> [--client azure-ai-ml-1.35] [--only WORD]

`<folder>` is a checkout's folder of job files, azureml-examples' `cli/jobs/basics` for one; nothing
of it is copied here. A server of its own is started over a temporary home, with what the examples'
own setup makes (see validate.py), and `--data` is read where files name the examples' storage
account. Both ways end alike when status, exit code and the files that the job left are the same.
`make azure-clients` comes first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path += [str(path) for path in (HERE, TESTS / "end_to_end", TESTS / "contracts_azure", TESTS)]

import client_venvs  # noqa: E402
import validate  # noqa: E402
from yard_under_test import ENDED, Yard, remove  # noqa: E402

from torchyard import Client  # noqa: E402
from torchyard.base.settings import Settings  # noqa: E402

_ACCOUNT = "azuremlexamples.blob.core.windows.net"
_PLACES = (f"https://{_ACCOUNT}/datasets", f"wasbs://datasets@{_ACCOUNT}")
# In the client's environment: a name by file, or why it was refused.
_SUBMIT = """
import json, logging, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
from azure.ai.ml import MLClient, load_job
from azure.identity import DefaultAzureCredential
config, *files = sys.argv[1:]
ml = MLClient.from_config(DefaultAzureCredential(), path=config)
for file in files:
    try:
        said = {"name": ml.jobs.create_or_update(load_job(file)).name}
    except Exception as error:
        said = {"refused": f"{type(error).__name__}: {error}"[:400]}
    print("=> " + json.dumps({"file": file, **said}), flush=True)
"""


@dataclass(frozen=True)
class End:
    """How a job ended; `files` are what it left, logs' contents left out."""

    status: str
    exit_code: int | None
    files: tuple[str, ...]
    why: str = ""

    @property
    def alike(self) -> tuple[Any, ...]:
        return (self.status, self.exit_code, self.files)


def by_client(yard: Yard, client: str, files: list[Path], folder: Path) -> dict[str, str | End]:
    """By file: a job's name, or why it was refused."""
    variables = {**yard.variables, **json.loads(yard("client-env", "--shell", "json"))}
    yard("workspace", "config", "--path", str(folder))
    config = str(folder / ".azureml" / "config.json")
    done = subprocess.run(
        [str(client_venvs.python(client)), "-c", _SUBMIT, config, *map(str, files)],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        timeout=1800,
    )
    results: dict[str, str | End] = {}
    for line in done.stdout.splitlines():
        if line.startswith("=> "):
            result = json.loads(line[3:])
            refused = result.get("refused")
            results[result["file"]] = (
                End("refused", None, (), refused) if refused else result["name"]
            )
    return results


def by_yard(yard: Yard, files: list[Path]) -> dict[str, str | End]:
    results: dict[str, str | End] = {}
    for file in files:
        process = yard.start(
            *("job", "create", "-f", str(file), "-o", "json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = process.communicate(timeout=600)
        if process.returncode:
            results[str(file)] = End("refused", None, (), err.decode()[:400])
        else:
            results[str(file)] = json.loads(out)["name"]
    return results


def end_of(yard: Yard, name: str, limit_s: float) -> End:
    deadline = time.monotonic() + limit_s
    while yard.job(name)["status"] not in ENDED and time.monotonic() < deadline:
        time.sleep(1)
    job = yard.job(name)
    if job["status"] not in ENDED:
        yard.post(f"jobs/{name}/cancel", {})
        return End("still running", None, (), f"after {limit_s:.0f} s")
    files = [entry["path"] for entry in yard.get(f"jobs/{name}/files")["value"]]
    left = tuple(sorted(path for path in files if not path.startswith("system_logs")))
    return End(job["status"], job.get("exit_code"), left, str(job.get("error") or "")[:400])


def set_up(yard: Yard, files: list[Path], sample: Path, data: Path | None) -> None:
    (sample / "sample.csv").write_text("a,b\n1,2\n")
    client = Client(workspace="default", settings=Settings(yard.home))
    validate.set_up(client, files, sample, yard.home)
    if data is not None:
        yard("datastore", "create", "-n", "examples", "--type", "local", "--path", str(data))
        for path in _PLACES:
            yard("workspace", "map-url", path, "azureml://datastores/examples/paths/")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--client", default=client_venvs.CLIENTS[0])
    parser.add_argument("--data", type=Path, help="what lies in the examples' container `datasets`")
    parser.add_argument("--only", default="", help="files whose name has this word")
    parser.add_argument("--limit-s", type=float, default=900)
    options = parser.parse_args()
    files = [
        file
        for file in validate.command_jobs(options.folder.resolve())
        if options.only in file.name
    ]
    home = Path(tempfile.mkdtemp(prefix="torchyard-examples-"))
    yard = Yard(home)
    try:
        with tempfile.TemporaryDirectory() as folder:
            set_up(yard, files, Path(folder), options.data)
            by_sdk = by_client(yard, options.client, files, Path(folder))
            by_command = by_yard(yard, files)
            alike = 0
            for file in files:
                ends = []
                for results in (by_sdk, by_command):
                    result = results.get(str(file), End("not submitted", None, ()))
                    ends.append(
                        result if isinstance(result, End) else end_of(yard, result, options.limit_s)
                    )
                same = ends[0].alike == ends[1].alike
                alike += same
                print(f"{file.name:40} {'alike' if same else 'NOT ALIKE'} {ends[0].status}")
                for way, end in zip(("SDK", "yard"), ends, strict=True):
                    if not same or end.why:
                        print(
                            f"    {way:5} {end.status} {end.exit_code} {' '.join(end.why.split())}"
                        )
                    if not same:
                        print(f"          {' '.join(end.files)}")
            print(f"{len(files)} files, {alike} end alike")
    finally:
        yard("server", "stop")
        remove(home)


if __name__ == "__main__":
    main()
