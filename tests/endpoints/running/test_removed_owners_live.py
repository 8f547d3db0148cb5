"""The owner of an endpoint and its deployment is removed while both answer, on a real server."""

from __future__ import annotations

import json

import pytest

from end_to_end.yard_under_test import Yard, wait_until
from endpoints.running.test_endpoints_live import _ANSWER, Sample, sample, yard
from torchyard.base.http import Transport

__all__ = ["sample", "yard"]
pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]
_TAKE_OVER = {"torchyard": {"take_over": True}}


def test_a_removed_owners_instances_end_keys_are_refused_and_another_takes_over(
    yard: Yard, sample: Sample
) -> None:
    sample.deploy("blue")
    sample.traffic("blue=100")
    at = f"/v1/workspaces/default/online-endpoints/{sample.name}"
    url = json.loads((yard.home / "server.json").read_text())["url"]
    home = Transport(url, (yard.home / "token").read_text().strip())
    home.post("/v1/users", {"name": "dan", "role": "contributor", "workspace": "default"})
    made = home.post("/v1/users/dan/tokens", {"name": "tests"})
    dan = Transport(url, made["token"])
    for path in (at, f"{at}/deployments/blue"):
        assert dan.call("PATCH", path, _TAKE_OVER)["owner"] == "dan"
    wait_until(lambda: sample.show("blue")["served_revision"] == 2, 120, "dan's instance answers")
    wait_until(lambda: sample.ask()[1] == _ANSWER, 60, "it answers by the new keys")
    job = sample.show("blue")["instances"][-1]["job"]
    assert yard.job(job)["owner"] == "dan"

    home.delete("/v1/users/dan")
    wait_until(lambda: not sample.show("blue")["instances"], 60, "its instances are gone")
    shown = sample.show("blue")
    assert shown["provisioning_state"] == "Failed" and "`dan` may no longer" in shown["message"]
    assert yard.job(job)["error"]["code"] == "owner_may_not_run"
    wait_until(lambda: sample.ask()[0] == 401, 30, "its keys are refused")
    jobs = yard.get("jobs?experiment=online-endpoints")["value"]
    assert all(each["status"] in ("Canceled", "Failed", "Completed") for each in jobs)

    yard("online-endpoint", "update", "-n", sample.name, "--take-over")
    yard("online-deployment", "update", "-n", "blue", "-e", sample.name, "--take-over")
    wait_until(lambda: sample.ask()[1] == _ANSWER, 120, "it answers for its new owner")
    assert sample.show("blue")["owner"] != "dan"
    for transport in (home, dan):
        transport.close()
