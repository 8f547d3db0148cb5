"""`python -I -m torchyard.environments.build.build_program`: make one environment as another user.

Owns: reading the request, the steps of a build in a process of their own, writing the result.
Leaves: the steps to builder.py, starting this and taking the result over to runner_builds.py.
Always: it runs where code of strangers runs: it has no key, no database and no rights but those of
the build user; what it writes is believed by nobody before it was checked.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from torchyard.base.errors import TorchyardError
from torchyard.environments.build import builder
from torchyard.environments.packages import machine_config
from torchyard.environments.packages.uv import Uv
from torchyard.environments.types import EnvironmentSpec, from_json

REQUEST, RESULT = "request.json", "result.json"
"""In the folder of the build, and in its `work/`."""


@dataclass(frozen=True)
class Result:
    """The lock, or why there is none."""

    lock: str = ""
    error: str = ""
    hint: str = ""
    code: str = ""


def request(spec: EnvironmentSpec, final: Path, known_lock: str) -> str:
    """What `main` reads.

    Args:
        final: where the environment will be.
    """
    return json.dumps({"spec": spec.to_json(), "final": str(final), "known_lock": known_lock})


def main() -> None:
    """Run in `work/`, with the request beside it."""
    working = Path.cwd()
    body = json.loads((working.parent / REQUEST).read_text())
    config = machine_config.read(os.environ)
    uv = Uv(config, sys.stdout.buffer, lambda: False, None)
    try:
        lock = builder.make(
            from_json(body["spec"]), Path(body["final"]), body["known_lock"], uv, working
        )
        result = Result(lock)
    except TorchyardError as error:
        result = Result("", error.message, error.hint, error.code)
    (working / RESULT).write_text(json.dumps(asdict(result)))
    raise SystemExit(bool(result.error))


if __name__ == "__main__":
    main()
