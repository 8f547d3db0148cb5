"""Every key of an endpoint's and a deployment's file, and how it is supported.

Owns: the tables of keys; the page of them in the docs; checking a mapping's keys against a table.
Leaves: reading values to endpoint_spec.py, deployment_spec.py and settings.py.
Always: a key is honoured, satisfied by what is there anyway, or refused by name; never ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described, unknown_key
from torchyard.jobs.spec.keys import Key

_READ_ONLY = "only the server writes it: remove it"
_AS_A_JOB = "as of a job: see [the job file](job-file.md)"

ENDPOINT: tuple[Key, ...] = (
    Key("$schema", "satisfied", "for editors; not read"),
    Key("name", "honoured", "3 to 32 letters, digits and single dashes, beginning with a letter"),
    Key("auth_mode", "honoured", "`key` (the default), `aml_token`, `aad_token`"),
    Key("description", "honoured", ""),
    Key("tags", "honoured", "texts and numbers"),
    Key("properties", "honoured", "texts and numbers"),
    Key("traffic", "honoured", "percent by deployment, 0 or 100 in all; by `update` only"),
    Key("mirror_traffic", "honoured", "percent of requests that one deployment gets a copy of"),
    Key("identity", "satisfied", "`{type: system_assigned}`; the owner's rights are used"),
    Key("public_network_access", "satisfied", "`enabled`; the server's address decides"),
    Key("kind", "satisfied", "`Managed`"),
    Key("type", "satisfied", "`online`"),
    Key("location", "satisfied", "the server's machine"),
    Key("compute", "refused", "leave it out; a deployment names a cluster: `torchyard: {cluster}`"),
    Key("id", "refused", _READ_ONLY),
    Key("scoring_uri", "refused", _READ_ONLY),
    Key("openapi_uri", "refused", _READ_ONLY),
    Key("provisioning_state", "refused", _READ_ONLY),
)

DEPLOYMENT: tuple[Key, ...] = (
    Key("$schema", "satisfied", "for editors; not read"),
    Key("name", "honoured", "as of an endpoint"),
    Key("endpoint_name", "honoured", "an endpoint of the same workspace"),
    Key("type", "satisfied", "`managed`"),
    Key("description", "honoured", ""),
    Key("tags", "honoured", "texts and numbers"),
    Key("properties", "honoured", "texts and numbers"),
    Key("model", "honoured", "`azureml:<name>:<version>`, or `{path, type}`"),
    Key("code_configuration", "honoured", "`{code, scoring_script}`; MLflow and ONNX need none"),
    Key("environment", "honoured", f"{_AS_A_JOB}; an MLflow model brings its own"),
    Key("environment_variables", "honoured", _AS_A_JOB),
    Key("instance_type", "satisfied", "the cluster decides: `torchyard: {cluster: …}`"),
    Key("instance_count", "honoured", "1 or more; default 1"),
    Key("request_settings", "honoured", "see below"),
    Key("liveness_probe", "honoured", "see below"),
    Key("readiness_probe", "honoured", "see below"),
    Key("scale_settings", "honoured", "see below"),
    Key("data_collector", "honoured", "see below"),
    Key("app_insights_enabled", "satisfied", "logs and metrics are kept here, whatever it says"),
    Key("egress_public_network_access", "satisfied", "`enabled`"),
    Key("torchyard", "honoured", "torchyard's own, see below"),
    Key("model_mount_path", "refused", "read the model's folder from `AZUREML_MODEL_DIR`"),
    Key("resources", "refused", "of Kubernetes; name a cluster: `torchyard: {cluster: …}`"),
    Key("provisioning_state", "refused", _READ_ONLY),
    Key("id", "refused", _READ_ONLY),
)

MODEL: tuple[Key, ...] = (
    Key("path", "honoured", "a file or folder here, or what a model's `path` may name"),
    Key("type", "honoured", "`custom_model` (the default) or `mlflow_model`"),
    Key("name", "honoured", "registers the model under this name"),
    Key("version", "honoured", "of the name"),
    Key("description", "honoured", "of the name"),
    Key("folder", "honoured", "its folder below `AZUREML_MODEL_DIR`; the client writes it"),
    Key("is_file", "honoured", "it is one file; the server writes it"),
)

CODE: tuple[Key, ...] = (
    Key("code", "honoured", "a folder here; a snapshot is taken"),
    Key("scoring_script", "honoured", "a Python file in it, with `init` and `run`"),
)

INFERENCE: tuple[Key, ...] = (
    Key("liveness_route", "satisfied", "`{path: /}`"),
    Key("readiness_route", "satisfied", "`{path: /}`"),
    Key("scoring_route", "satisfied", "`{path: /score}`"),
)

ROUTE: tuple[Key, ...] = (
    Key("path", "satisfied", "that of azureml-inference-server-http; others are refused"),
    Key("port", "satisfied", "has no effect: each instance gets a free one"),
)

REQUEST_SETTINGS: tuple[Key, ...] = (
    Key("request_timeout_ms", "honoured", "default 5000, up to 180,000"),
    Key("max_concurrent_requests_per_instance", "honoured", "default 1"),
    Key("max_queue_wait_ms", "honoured", "default 500"),
)

PROBE: tuple[Key, ...] = (
    Key("initial_delay", "honoured", "seconds before the first try; default 10"),
    Key("period", "honoured", "seconds between two; default 10"),
    Key("timeout", "honoured", "seconds until one has failed; default 2"),
    Key("success_threshold", "honoured", "default 1"),
    Key("failure_threshold", "honoured", "default 30"),
)

SCALE: tuple[Key, ...] = (
    Key("type", "honoured", "`default` (as many as `instance_count`) or `target_utilization`"),
    Key("min_instances", "honoured", "default 1; 0 lets it scale to zero"),
    Key("max_instances", "honoured", "default 1"),
    Key("polling_interval", "honoured", "seconds between two looks; default 1"),
    Key("target_utilization_percentage", "honoured", "1 to 100, default 70"),
)

COLLECTOR: tuple[Key, ...] = (
    Key("collections", "honoured", "`model_inputs`, `model_outputs`, `request`, `response`, more"),
    Key("sampling_rate", "honoured", "0 to 1, default 1; of collections that have none"),
    Key("rolling_rate", "honoured", "`hour` (the default), `minute`, `day`, `month`, `year`"),
    Key("request_logging", "refused", "headers are not collected"),
)

COLLECTION: tuple[Key, ...] = (
    Key("enabled", "honoured", "`true` or `false`"),
    Key("sampling_rate", "honoured", "0 to 1"),
    Key("data", "honoured", "the data asset: `azureml:<name>:<version>`, or see below"),
    Key("client_id", "refused", "the server writes with its own rights"),
)

COLLECTED_DATA: tuple[Key, ...] = (
    Key("name", "honoured", "default `<endpoint>-<deployment>-<collection>`"),
    Key("version", "honoured", "default 1"),
    Key("path", "refused", "the files are in `workspaceblobstore`, below `modelDataCollector`"),
)

OWN: tuple[Key, ...] = (
    Key("take_over", "honoured", "`true`: another's becomes [yours](ownership.md); not kept"),
    Key("cluster", "honoured", "where instances run; default `local`"),
    Key("batching", "honoured", "`{max_size, max_wait_ms}` for models that take lists of inputs"),
    Key("max_queue", "honoured", "requests that may wait at once; default 100"),
    Key("max_body_mb", "honoured", "MiB that a request's body may have; default 100"),
    Key("max_collected_mb", "honoured", "MiB of collected data; older hours go; default 1024"),
    Key("scale_to_zero_after_s", "honoured", "seconds without a request; default 600"),
)

BATCHING: tuple[Key, ...] = (
    Key("max_size", "honoured", "rows in a batch, 2 to 1024; default 8"),
    Key("max_wait_ms", "honoured", "how long the first one waits; default 5"),
)

_INTRODUCTION = """
Made from the tables in `src/torchyard/endpoints/spec/keys.py` by
`python -m torchyard.endpoints.spec.keys`; edit those, not this. Files of Azure's online endpoints
and managed online deployments are read as they are. Words of a fixed set are read in any case.
"""
_ROUTES_NOTE = """
An image that stands alone, without a scoring script, would have to start a server of its own:
TensorFlow Serving, TorchServe, Triton, plumber. Such deployments are refused by name. With a
scoring script, or with packages that are installed here, azureml-inference-server-http answers,
and its routes are those above.
"""
_OWN_NOTE = """
`torchyard:` stands at the top of a deployment's file. Azure's clients say the same by tags:
`torchyard.max_queue: "20"`; a mapping is JSON there.
"""


def check(body: Any, table: Sequence[Key], at: Sequence[str | int], subject: str) -> dict[str, Any]:
    """The mapping, if all of its keys are in the table and none is refused there.

    Raises:
        InvalidSpec: another key, one that is refused, or no mapping at all.
    """
    if not isinstance(body, Mapping):
        raise InvalidSpec(
            f"{subject} must be a mapping of keys to values, not {described(body)}",
            f"known keys: {', '.join(key.name for key in table if key.support != 'refused')}",
            at=tuple(at),
        )
    known_keys = {key.name: key for key in table}
    for key, value in body.items():
        known_key = known_keys.get(key) if isinstance(key, str) else None
        if known_key is None:
            raise unknown_key(str(key), list(known_keys), at, inside="" if not at else str(at[-1]))
        if known_key.support == "refused" and value not in (None, "", {}, []):
            raise InvalidSpec(
                f"`{'.'.join(map(str, [*at, key]))}` is not served",
                known_key.note,
                code="not_served",
                at=(*at, str(key)),
            )
    return dict(body)


def page() -> str:
    """docs/reference/endpoint-file.md."""
    lines = ["# Endpoint and deployment files, key by key", *_paragraphs(_INTRODUCTION)]
    for title, table in (
        ("The endpoint", ENDPOINT),
        ("The deployment", DEPLOYMENT),
        ("`model`", MODEL),
        ("`code_configuration`", CODE),
        ("`environment.inference_config`", INFERENCE),
        ("`environment.inference_config.<route>`", ROUTE),
        ("`request_settings`", REQUEST_SETTINGS),
        ("`liveness_probe` and `readiness_probe`", PROBE),
        ("`scale_settings`", SCALE),
        ("`data_collector`", COLLECTOR),
        ("`data_collector.collections.<name>`", COLLECTION),
        ("`data_collector.collections.<name>.data`", COLLECTED_DATA),
        ("`torchyard`", OWN),
        ("`torchyard.batching`", BATCHING),
    ):
        lines += _table(title, table)
        if table is ROUTE:
            lines += _paragraphs(_ROUTES_NOTE)
        if table is OWN:
            lines += _paragraphs(_OWN_NOTE)
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    """One line a paragraph, as the docs have them."""
    paragraphs = text.strip().split("\n\n")
    return [line for each in paragraphs for line in ("", " ".join(each.split("\n")))]


def _table(title: str, keys: Iterable[Key]) -> Iterable[str]:
    yield from ("", f"## {title}", "", "| key | support | |", "|---|---|---|")
    for key in keys:
        yield f"| `{key.path}` | {key.support} | {key.note} |"


if __name__ == "__main__":
    print(page(), end="")
