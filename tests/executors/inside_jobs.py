"""Shells and services inside a job that runs on an engine's nodes; a module of each engine's tests
inherits this.

Nodes listen at no port for it: everything passes through the tunnel that the worker opens.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, wait_until
from executors.listening_yard import CLUSTER
from interactive.service_visits import Visitor

_LIMIT_S = 180
_NAME = "inside"
# Serves what says which node answers, from the folder that the ranks run in.
_SERVE = (
    "echo node $NODE_RANK > page-$NODE_RANK.txt; exec python -m http.server --bind 127.0.0.1 $PORT"
)
_COMMAND = "echo rank $RANK > here-$RANK.txt; echo begun; sleep 600"


class InsideJobs:
    """Inherit, and give a fixture `yard` of `listening_yard`."""

    @pytest.fixture(scope="class")
    @classmethod
    def job(cls, yard: Yard) -> Iterator[str]:
        """It runs on two nodes, with two ranks on each."""
        yard.post(
            "jobs",
            {
                "name": _NAME,
                "command": _COMMAND,
                "environment": "python",
                "compute": CLUSTER,
                "resources": {"instance_count": 2},
                "distribution": {"type": "pytorch", "process_count_per_instance": 2},
                "environment_variables": {"MINE": "yes"},
                "services": {
                    "pages": {
                        "type": "custom",
                        "nodes": "all",
                        "properties": {"command": _SERVE},
                    }
                },
            },
        )
        wait_until(lambda: len(_begun(yard)) == 4, _LIMIT_S, "all ranks have begun")
        yield _NAME
        yard("job", "cancel", _NAME)
        assert yard.wait(_NAME, _LIMIT_S)["status"] == "Canceled"

    @pytest.mark.parametrize("rank", [0, 3])
    def test_a_shell_has_what_its_rank_has(self, yard: Yard, job: str, rank: int) -> None:
        command = f"cat here-{rank}.txt && echo $RANK $NODE_RANK $MINE; cat; echo err >&2; exit 7"
        words = ("job", "shell", job, "--rank", str(rank), "--", "sh", "-c", command)
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        sent = os.urandom(1 << 20)
        with yard.start(*words, **pipes) as process:
            out, err = process.communicate(sent, timeout=_LIMIT_S)
        assert out == f"rank {rank}\n{rank} {rank // 2} yes\n".encode() + sent, err
        assert (err, process.returncode) == (b"err\n", 7)

    @pytest.mark.parametrize("node", [0, 1])
    def test_a_service_of_each_node_is_reached(self, yard: Yard, job: str, node: int) -> None:
        def state() -> str:
            shown = json.loads(yard("job", "show-services", "-n", job, "-o", "json"))
            return {row["node"]: str(row["state"]) for row in shown}.get(node, "")

        wait_until(lambda: state() == "Running", _LIMIT_S, f"the service of node {node} runs")
        link = yard.post(f"jobs/{job}/services/pages/link", {"node": node})["url"]
        page = Visitor.signed_in(link).get(f"/page-{node}.txt")
        assert (page.status, page.body) == (200, f"node {node}\n".encode())


def _begun(yard: Yard) -> list[bytes]:
    return [log for log in yard.logs(_NAME).values() if b"begun" in log]
