"""JupyterLab and TensorBoard, from PyPI, inside a running job: opened by its owner alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, wait_until
from interactive.service_visits import Visitor
from torchyard.base.errors import Forbidden
from torchyard.base.http import Transport

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]
_JOBS = "/v1/workspaces/default/jobs"


def test_a_jobs_notebook_and_board_open_for_its_owner_alone(
    yard: Yard, people: dict[str, Transport]
) -> None:
    ada = people["ada"]
    ada.post(
        _JOBS,
        {
            "name": "with-services",
            "command": "mkdir -p tb; echo hello > found.txt; sleep 900",
            "environment": "python",
            "services": {
                "notebook": {"type": "jupyter_lab"},
                "board": {"type": "tensor_board", "log_dir": "tb"},
            },
        },
    )

    def states() -> dict[str, Any]:
        rows = ada.get(f"{_JOBS}/with-services/services")["value"]
        return {row["name"]: row["state"] for row in rows}

    wait_until(lambda: states() == {"notebook": "Running", "board": "Running"}, 600, "both run")
    for service in ("notebook", "board"):
        path = f"{_JOBS}/with-services/services/{service}/link"
        for name in ("bob", "carl", "rita"):
            with pytest.raises(Forbidden):
                people[name].post(path, {"node": None})
        visitor = Visitor.signed_in(str(ada.post(path, {"node": None})["url"]))
        if service == "board":
            assert b"<title>TensorBoard</title>" in visitor.get("/").body
            assert visitor.get("/data/environment").status == 200
        else:
            files = json.loads(visitor.get("/api/contents").body)["content"]
            assert "found.txt" in [file["name"] for file in files]
            specs = json.loads(visitor.get("/api/kernelspecs").body)
            assert specs["default"] == "job"
            assert visitor.get("/lab").status == 200  # it gives the token against forged requests
            assert _in_a_notebook(visitor) == "with-services"
        visitor.cookies.clear()
        assert visitor.get("/").status == 401


def _in_a_notebook(visitor: Visitor) -> str:
    """What a kernel of the job's Python prints of TORCHYARD_JOB, over its websocket."""
    import os
    import struct

    token = visitor.cookies.get("_xsrf", "")
    made = visitor.get("/api/kernels", "POST", b'{"name": "job"}', X_XSRFToken=token)
    assert made.status == 201, made.body
    kernel = json.loads(made.body)["id"]
    origin = f"http://{visitor.host}"
    with visitor.upgraded(f"/api/kernels/{kernel}/channels", Origin=origin) as connection:
        reader = connection.makefile("rb")
        assert b"101" in reader.readline()
        while reader.readline() != b"\r\n":
            pass
        header = {"msg_id": "m1", "msg_type": "execute_request", "session": "s", "username": "t"}
        message = {
            "header": {**header, "version": "5.3", "date": ""},
            "parent_header": {},
            "metadata": {},
            "channel": "shell",
            "content": {
                "code": "import os; print(os.environ['TORCHYARD_JOB'])",
                "silent": False,
                "store_history": False,
                "user_expressions": {},
                "allow_stdin": False,
            },
        }
        data, mask = json.dumps(message).encode(), os.urandom(4)
        masked = bytes(byte ^ mask[number % 4] for number, byte in enumerate(data))
        connection.sendall(b"\x81" + struct.pack(">BH", 0x80 | 126, len(data)) + mask + masked)
        while True:
            first, second = reader.read(2)
            size = second & 127
            if size == 126:
                size = struct.unpack(">H", reader.read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", reader.read(8))[0]
            payload = reader.read(size)
            if first & 15 != 1:
                continue
            answer = json.loads(payload)
            if answer.get("msg_type") == "stream":
                return str(answer["content"]["text"]).strip()
            assert answer.get("msg_type") != "error", answer
