"""The short way to the routes that scripts use most passes every guard of the long one."""

from __future__ import annotations

from pathlib import Path

from torchyard.workspaces import people
from workspaces.served import served

ONE_DATABASE = True
_RUNS = "/api/2.0/mlflow/runs"


def test_the_short_way_passes_every_guard(tmp_path: Path, database_url: str) -> None:
    with served(tmp_path, database_url) as server:
        made = server.ok("dan", "POST", f"{_RUNS}/create", {"experiment_id": "0"})
        point = {"run_id": made["run"]["info"]["run_id"], "key": "loss", "value": 1, "timestamp": 1}
        server.ok("dan", "POST", f"{_RUNS}/log-metric", point)
        app = server.client.app
        app.router.routes.clear()  # type: ignore[attr-defined]
        assert server.ask("dan", "GET", "/health").status_code == 404, "no long way is left"
        for path, fields in ((f"{_RUNS}/log-metric", point), (f"{_RUNS}/create", {})):
            assert server.ok("dan", "POST", path, fields) is not None
            assert server.client.post(path, json=fields).status_code == 401
            refusal = server.refused("rita", "POST", path, fields)
            assert refusal["error_code"] == "PERMISSION_DENIED"
            nul = server.ask("dan", "POST", path, {**fields, "key": "a\0"})
            assert nul.status_code == 400 and "NUL" in nul.json()["message"]
            large = server.ask("dan", "POST", path, {**fields, "more": "x" * (17 << 20)})
            assert large.status_code == 413
            spaced = server.ask("dan", "POST", path, {**fields, "more": "x" * 100_000})
            assert spaced.status_code == 200
            assert server.ask("dan", "GET", path).status_code == 404
        lines = app.state.audit.read(user="dan")  # type: ignore[attr-defined]
        created = [line for line in lines if line["path"] == f"{_RUNS}/create"]
        assert [line["status"] for line in created] == [200, 413, 400, 200, 200]
        assert not [line for line in lines if line["path"].endswith("log-metric")]
        people.revoke_all(server.parts.services.db, "dan")
        for path in ("log-metric", "create"):
            assert server.ask("dan", "POST", f"{_RUNS}/{path}", point).status_code == 401
