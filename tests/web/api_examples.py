"""The OpenAPI document's examples, sent to a server: `python -m web.api_examples` records them.

Owns: what is there before each request; what is recorded in place of values that change.
Leaves: the requests to openapi_examples.json, where a new one is added by hand.
"""

from __future__ import annotations

import getpass
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from torchyard.app.openapi_document import EXAMPLES
from torchyard.base.clock import FakeClock
from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.endpoints.records import address
from torchyard.jobs.files import artifacts
from torchyard.jobs.records import store
from workspaces.served import HERE, JOB, MLFLOW, Served, served

ANYWHERE = "/v1/workspaces/{workspace}"
CODE = b'print("loss", 0.5)\n'
# They take a scheduler, or an instance that runs; their answers are written by hand.
UNSENT = {
    "GET /readyz",
    f"POST {ANYWHERE}/online-endpoints/{{endpoint}}/try",
    f"GET {ANYWHERE}/online-endpoints/{{endpoint}}/deployments/{{deployment}}/logs",
}
_LONGEST_LISTS = {"value": 2, "packages": 2}
_TOKEN = re.compile(r"\b(yard_\w_)[\w-]+")


def stored() -> list[dict[str, Any]]:
    examples: list[dict[str, Any]] = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    return examples


def send(site: Served, example: dict[str, Any]) -> Any:
    """The answer: JSON, or text where the example names a type."""
    method, path = example["operation"].split(" ")
    parameters = {key: str(value) for key, value in example["parameters"].items()}
    for name in re.findall(r"{(\w+)}", path):
        path = path.replace(f"{{{name}}}", parameters.pop(name))
    answer = site.ask("home", method, path, example.get("request"), params=parameters)
    assert answer.status_code == example["status"], (example["operation"], answer.text)
    return answer.text if "media_type" in example else answer.json()


def sent(site: Served) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each example with the answer to it, on an empty server."""
    site.parts.services.blobs.of("default").put_bytes(CODE)
    address.write(site.parts.services.home, "http://127.0.0.1:4711")
    for example in stored():
        if example["operation"] not in UNSENT:
            yield example, send(site, example)
            _AFTER.get((example["operation"], example["name"]), _nothing)(site)


def _nothing(site: Served) -> None:
    pass


def _complete(site: Served) -> None:
    """What `digits-1` logs and writes; another job that waits."""
    site.ok("home", "POST", f"{HERE}/jobs", {**JOB, "name": "digits-2"})
    for step, value in enumerate((0.9, 0.5)):
        point = {"run_id": "digits-1", "key": "loss", "value": value, "step": step}
        site.ok("home", "POST", f"{MLFLOW}/runs/log-metric", {**point, "timestamp": 1793800000000})
    services = site.parts.services
    lines = b"loss 0.9\nloss 0.5\n"
    services.logs.append("default", "digits-1", 1, "user_logs/std_log.txt", 0, lines)
    report = f"{artifacts_of('digits-1')}/outputs/report.csv"
    with services.datastores.writing("default", ARTIFACT_STORE, report) as writing:
        writing.write(b"digit,right\n0,0.98\n")
    with services.db.write() as connection:
        job = store.job_named(connection, "default", "digits-1")
        assert job is not None
        start = job.created_at + timedelta(seconds=2)
        store.change_job(
            connection,
            job.id,
            status="Completed",
            attempt=1,
            exit_code=0,
            started_at=start,
            ended_at=start + timedelta(minutes=3),
            duration_s=180.0,
        )
    with artifacts.writing_output(services, job, "model", "model.pt") as writing:
        writing.write(b"weights")


_AFTER: dict[tuple[str, str], Callable[[Served], None]] = {
    (f"POST {ANYWHERE}/jobs", "command job"): _complete
}


def _steady(value: Any, home: str) -> Any:
    """The same on every machine, and short."""
    if isinstance(value, dict):
        fixed = {"version": "0.1.0", "pid": 4321} if "pid" in value else {}
        fixed |= {key: "SECRET" for key in ("primaryKey", "secondaryKey") if key in value}
        fixed |= {
            key: value[key][:most]
            for key, most in _LONGEST_LISTS.items()
            if isinstance(value.get(key), list)
        }
        return {key: _steady(item, home) for key, item in {**value, **fixed}.items()}
    if isinstance(value, list):
        return [_steady(item, home) for item in value]
    if not isinstance(value, str):
        return value
    if value == getpass.getuser():
        return "olga"
    text = _TOKEN.sub(r"\1SECRET", value).replace(home, "/home/olga/.torchyard")
    return text.replace(f'"{getpass.getuser()}"', '"olga"')


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"  # a key lies beside it
        with served(home, "", FakeClock()) as site:
            answers = {_key(example): _steady(answer, str(home)) for example, answer in sent(site)}
    examples = stored()
    for example in examples:
        example["response"] = answers.get(_key(example), example.get("response"))
    EXAMPLES.write_text(json.dumps(examples, indent=1) + "\n", encoding="utf-8")


def _key(example: dict[str, Any]) -> tuple[str, str]:
    return example["operation"], example["name"]


if __name__ == "__main__":
    main()
