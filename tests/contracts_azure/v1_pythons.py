"""SDK v1's operations on other versions of Python, by hand: a table of what failed.

    python tests/contracts_azure/v1_pythons.py FOLDER PYTHON… [--core azureml-core==1.61.0.post4]

FOLDER keeps an environment for each PYTHON, which is a path of an interpreter.

Owns: the environments, one server for each of them, for operations make things by name.
Leaves: the operations to run_operations.py.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from v1_operations import OPERATIONS

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
PACKAGES = ("azureml-dataset-runtime", "azureml-train-core", "setuptools<81")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pythons", type=Path, nargs="+", metavar="PYTHON")
    parser.add_argument("--core", default="azureml-core==1.61.0.post4")
    parser.add_argument("--limit-s", type=int, default=1800)
    options = parser.parse_args()
    expected = {operation.key: operation.outcome == "works" for operation in OPERATIONS}
    for python in options.pythons:
        version = subprocess.check_output([python, "-V"], text=True).split()[1]
        top = options.folder.resolve() / version
        client = _client(top / "client", python, options.core)
        results = _operated(top / "run", client, options.limit_s)
        wrong = [
            key for key, works in expected.items() if results.get(key, {}).get("ok") is not works
        ]
        print(f"Python {version}: {len(expected) - len(wrong)} of {len(expected)} as expected")
        for key in wrong:
            error = results.get(key, {}).get("error", "not reached")
            print(f"  {key}\n    {error.splitlines()[0][:200]}", flush=True)


def _client(folder: Path, python: Path, core: str) -> Path:
    if not (folder / "whole").exists():
        uv = [str(BIN / "uv")]
        subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", python, folder], check=True)
        interpreter = ["--python", str(folder / "bin" / "python")]
        subprocess.run(
            [*uv, "pip", "install", "--quiet", *interpreter, core, *PACKAGES], check=True
        )
        (folder / "whole").touch()
    return folder / "bin" / "python"


def _operated(top: Path, client: Path, limit_s: int) -> dict[str, dict[str, Any]]:
    shutil.rmtree(top, ignore_errors=True)
    (top / "work").mkdir(parents=True)
    foreign = ("TORCHYARD", "AZURE", "MLFLOW")
    clean = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
    yard = {**clean, "TORCHYARD_HOME": str(top / "home")}

    def say(*words: str | Path) -> str:
        return subprocess.check_output([BIN / "yard", *words], env=yard, text=True)

    say("server", "start")
    try:
        say("workspace", "config", "--path", top / "work")
        redirection = json.loads(say("client-env", "--shell", "json"))
        command: list[str | Path] = [client, HERE / "run_operations.py"]
        command += ["azureml-core-1.61", top / "work"]
        with open(top / "log", "wb") as log:
            subprocess.run(
                command,
                cwd=top / "work",
                env={**clean, **redirection, "TEST_EXPIRED_TOKEN": "ended"},
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                check=False,
            )
    except subprocess.TimeoutExpired:
        print(f"the operations took longer than {limit_s} s: the rest was not reached")
    finally:
        say("server", "stop")
    results: dict[str, dict[str, object]] = json.loads((top / "work" / "results.json").read_text())
    return results


if __name__ == "__main__":
    main()
