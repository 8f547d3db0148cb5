"""A real server tells a webhook of a job's end, as the file of `--messages` allows it."""

from __future__ import annotations

import json
from pathlib import Path

from jobs.messages import receivers
from served_process import served_process

JOBS = "/v1/workspaces/default/jobs"
LIMIT_S = 120.0


def test_a_server_sends_messages_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "messages.json"
    file.write_text(json.dumps({"allow_networks": ["127.0.0.0/8"]}))
    with (
        receivers.webhooks() as hook,
        served_process(tmp_path, ["--messages", str(file)]) as served,
    ):
        document = {
            "name": "told",
            "command": "true",
            "environment": "python",
            "torchyard": {"notify": [{"url": hook.url}]},
        }
        served.ok("POST", JOBS, served.owner, document)
        served.ok("POST", f"{JOBS}/told/cancel", served.owner)
        assert hook.received.wait(LIMIT_S), served.log.read_text()
        body = json.loads(hook.requests[0].body)
        assert (body["event"], body["job"]["name"]) == ("job.canceled", "told")
        assert body["job"]["url"] == f"{served.url}/ui/workspaces/default/jobs/told"


def test_a_wrong_file_of_messages_is_named_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "messages.json"
    file.write_text(json.dumps({"smtp": {"host": "mail.example.org"}}))
    try:
        with served_process(tmp_path, ["--messages", str(file)]):
            raise RuntimeError("the server started")
    except AssertionError as ended:
        assert "error: `smtp` has no valid `sender`" in str(ended)
        assert "hint: see the guide `monitoring`" in str(ended)
