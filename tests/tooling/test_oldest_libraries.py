"""The server with the oldest libraries that pyproject.toml allows; the newest are in the lock."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from app.started_server import started_server

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
_OLDEST = ("fastapi", "pydantic", "sqlalchemy", "starlette", "uvicorn")


def dependencies() -> dict[str, str]:
    """What the package needs, by name."""
    text = (ROOT / "pyproject.toml").read_text()
    listed = text.partition("\ndependencies = [\n")[2].partition("\n]")[0]
    bounds = re.findall(r'"([a-z]+)([^"]*)"', listed)
    assert set(_OLDEST) <= {name for name, _ in bounds}
    return dict(bounds)


def test_no_dependency_has_an_upper_bound() -> None:
    """It would stand against what else lies in the same environment (docs/guides/install.md)."""
    bounds = dependencies()
    assert all(re.fullmatch(r">=[\d.]+", bound) for bound in bounds.values()), bounds


def test_the_server_runs_with_the_oldest(tmp_path: Path) -> None:
    oldest = [
        name + (bound.replace(">=", "==") if name in _OLDEST else bound)
        for name, bound in dependencies().items()
    ]
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install: list[str | Path] = [
        sys.executable,
        ROOT / "tools" / "run_uv.py",
        "pip",
        "install",
        "--quiet",
    ]
    subprocess.run([*install, "--python", python, *oldest], check=True, cwd=ROOT)
    variables = {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    home = tmp_path / "home"
    with started_server(home, variables=variables, python=python) as (port, _):
        headers = {"Authorization": f"Bearer {(home / 'token').read_text().strip()}"}
        for path in (
            "/v1/workspaces/default/jobs",
            "/v1/workspaces/default/computes",
            "/mlflow/default/api/2.0/mlflow/experiments/get?experiment_id=0",
            "/openapi.json",
        ):
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
            with urllib.request.urlopen(request, timeout=60) as response:
                assert json.loads(response.read()) is not None
