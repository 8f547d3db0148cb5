"""The table of keys: whole, kept, and on the page of the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchyard.base.documents import pages
from torchyard.base.documents.pages import Declared
from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import job_spec, reference

TABLE = list(pages.walk(job_spec.JobFile))
GOOD = {"command": "true", "environment": "python"}
# commandJob of the schema, key by key.
SCHEMA = """
type name display_name experiment_name description tags properties command code environment
environment_variables compute parent_job_name $schema id status creation_context log_files
parameters distribution.type distribution.process_count_per_instance distribution.worker_count
distribution.parameter_server_count distribution.port distribution.address
distribution.include_dashboard distribution.dashboard_port distribution.head_node_additional_args
distribution.worker_node_additional_args resources.instance_count resources.instance_type
resources.shm_size resources.docker_args resources.properties resources.locations
resources.max_instance_count limits.timeout inputs.*.value inputs.*.type inputs.*.path
inputs.*.mode inputs.*.path_on_compute inputs.*.datastore outputs.*.type outputs.*.mode
outputs.*.path outputs.*.name outputs.*.version services.*.type services.*.port services.*.nodes
services.*.log_dir services.*.ssh_public_keys services.*.properties identity.type
identity.client_id notification_settings.email_on notification_settings.emails
notification_settings.webhooks queue_settings.job_tier queue_settings.priority
""".split()


def test_the_page_is_what_the_table_says() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "job-file.md"
    assert page.read_text(encoding="utf-8") == reference.page(), "run `make docs`"


@pytest.mark.parametrize("path", SCHEMA)
def test_every_key_of_the_schema_is_in_the_table(path: str) -> None:
    assert [key for key in TABLE if key.path == path]


def test_no_row_stands_twice_and_each_refusal_says_what_to_do() -> None:
    rows = [(key.path, key.value) for key in TABLE]
    assert len(rows) == len(set(rows))
    assert all(key.note for key in TABLE if key.support == "refused")


def _document(path: str, value: Any) -> dict[str, Any]:
    """A good job with one more key."""
    steps = path.replace("*", "x").split(".")
    made: dict[str, Any] = {steps[-1]: value}
    if steps[:-1] == ["inputs", "x"]:
        made = {"path": "snapshot:1", **made}
    if steps[0] == "identity" and len(steps) > 1:
        made = {"type": "aml_token", **made}
    if steps[0] == "notification_settings":
        made = {"emails": ["ann@example.org"], **made}
    if steps[0] == "distribution" and steps[-1] != "type":
        made = {"type": "pytorch", **made}
    for step in reversed(steps[:-1]):
        made = {step: made}
    return {**GOOD, **made}


REFUSED = [
    key for key in TABLE if key.support == "refused" and not key.path.startswith("environment.")
]


@pytest.mark.parametrize("key", REFUSED, ids=lambda key: f"{key.path}={key.value}")
def test_what_the_table_refuses_is_refused(key: Declared) -> None:
    document = _document(key.path, key.value or 5)
    with pytest.raises(InvalidSpec) as refusal:
        job_spec.read(document)
    assert refusal.value.at[0] == key.path.partition(".")[0]
    assert refusal.value.hint


ACCEPTED_VALUES = [
    key
    for key in TABLE
    if key.value
    and key.support != "refused"
    and not key.path.startswith("environment.")
    # Other packages read them.
    and (key.path, key.value) not in (("type", "sweep"), ("type", "pipeline"))
]


@pytest.mark.parametrize("key", ACCEPTED_VALUES, ids=lambda key: f"{key.path}={key.value}")
def test_values_are_read_in_any_case(key: Declared) -> None:
    camel = "".join(part.capitalize() for part in key.value.split("_"))
    for written in (key.value, key.value.upper(), camel):
        document = _document(key.path, written)
        if key.note == "with `value`":
            value = True if key.value == "boolean" else 1
            document["inputs"]["x"] = {"type": written, "value": value}
        if key.path == "services.*.type":
            document["services"]["x"].update(port=8080)
        if key.value.startswith("eval_"):
            document["inputs"]["x"]["type"] = "mltable"
        if (key.path, key.value) == ("services.*.type", "custom"):
            document["services"]["x"]["port"] = 8080
        job_spec.read(document)


def test_an_empty_refused_key_asks_for_nothing() -> None:
    job_spec.read({**GOOD, "services": {}, "identity": None, "resources": {"docker_args": ""}})
