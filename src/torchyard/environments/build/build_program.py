"""`python -I -m torchyard.environments.build.build_program`: build or fetch as another user.

Owns: reading the request, the steps in a process of their own, writing the result.
Leaves: the steps to builder.py, starting this and taking the result over to runner_builds.py.
Always: it runs where code of strangers runs: it has no key, no database and no rights but those of
the build user; what it writes is believed by nobody before it was checked.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchyard.base.errors import TorchyardError
from torchyard.environments.build import builder, kept_wheels
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


def build_request(
    spec: EnvironmentSpec, final: Path, known_lock: str, store: Path, builds_nothing: bool
) -> str:
    """What `main` reads to make an environment.

    Args:
        final: where the environment will be.
        store: of wheels; see shared_wheels.py.
        builds_nothing: it has to be made of wheels alone.
    """
    body = {"spec": spec.to_json(), "final": str(final), "known_lock": known_lock}
    return json.dumps({**body, "store": str(store), "builds_nothing": builds_nothing})


def fetch_request(text: str, python: str) -> str:
    """What `main` reads to fetch the wheels of a lock for a Python, as `kept_wheels.fetch`."""
    return json.dumps({"lock": text, "python": python})


def main() -> None:
    """Run in `work/`, with the request beside it."""
    working = Path.cwd()
    body = json.loads((working.parent / REQUEST).read_text())
    config = machine_config.read(os.environ)
    store = Path(body["store"]) if "store" in body else None
    # In its home, which is this build's alone.
    cache = Path.home() / ".cache" / "uv"
    uv = Uv(
        config,
        sys.stdout.buffer,
        lambda: False,
        cache,
        shared_wheels=store,
        builds_nothing=bool(body.get("builds_nothing")),
    )
    try:
        result = Result(_do(body, working, uv))
    except TorchyardError as error:
        result = Result("", error.message, error.hint, error.code)
    (working / RESULT).write_text(json.dumps(asdict(result)))
    raise SystemExit(bool(result.error))


def _do(body: Mapping[str, Any], working: Path, uv: Uv) -> str:
    """The lock of an environment that was made; empty where wheels were fetched."""
    if "lock" in body:
        kept_wheels.fetch(body["lock"], body["python"], working, uv)
        return ""
    spec, final = from_json(body["spec"]), Path(body["final"])
    return builder.make(spec, final, body["known_lock"], uv, working)


if __name__ == "__main__":
    main()
