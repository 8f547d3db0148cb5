"""Every key of the files of batch endpoints, and how it is supported.

Owns: the tables of keys; the page of them in the docs.
Leaves: checking a mapping against a table to endpoints/spec/keys.py, reading values to
endpoint_spec.py, deployment_spec.py and invocation.py.
Always: a key is honoured, satisfied by what is there anyway, or refused by name; never ignored.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.jobs.spec.keys import Key

_READ_ONLY = "only the server writes it: remove it"
_AS_A_JOB = "as of a job: see [the job file](job-file.md)"
_PIPELINE = "pipelines are not deployed: submit a job, or deploy the model of its last step"

ENDPOINT: tuple[Key, ...] = (
    Key("$schema", "satisfied", "for editors; not read"),
    Key("name", "honoured", "3 to 32 letters, digits and single dashes, beginning with a letter"),
    Key("description", "honoured", ""),
    Key("tags", "honoured", "texts and numbers"),
    Key("properties", "honoured", "texts and numbers"),
    Key("defaults", "honoured", "`{deployment_name: …}`: what `invoke` takes"),
    Key("auth_mode", "satisfied", "`aad_token`: a token of this server"),
    Key("identity", "satisfied", "`{type: system_assigned}`; a job has its owner's rights"),
    Key("public_network_access", "satisfied", "`enabled`; the server's address decides"),
    Key("kind", "satisfied", "`Batch`"),
    Key("type", "satisfied", "`batch`"),
    Key("location", "satisfied", "the server's machine"),
    Key("id", "refused", _READ_ONLY),
    Key("scoring_uri", "refused", _READ_ONLY),
    Key("openapi_uri", "refused", _READ_ONLY),
    Key("provisioning_state", "refused", _READ_ONLY),
)

DEFAULTS: tuple[Key, ...] = (Key("deployment_name", "honoured", "a deployment of the endpoint"),)

DEPLOYMENT: tuple[Key, ...] = (
    Key("$schema", "satisfied", "for editors; not read"),
    Key("name", "honoured", "as of an endpoint"),
    Key("endpoint_name", "honoured", "a batch endpoint of the same workspace"),
    Key("type", "honoured", "`model` (the default); `pipeline` is refused by name"),
    Key("description", "honoured", ""),
    Key("tags", "honoured", "texts and numbers"),
    Key("properties", "honoured", "texts and numbers"),
    Key("model", "honoured", "`azureml:<name>:<version>`, or `{path, type}`"),
    Key("code_configuration", "honoured", "`{code, scoring_script}`; an MLflow model needs none"),
    Key("environment", "honoured", f"{_AS_A_JOB}; an MLflow model brings its own"),
    Key("environment_variables", "honoured", _AS_A_JOB),
    Key("compute", "honoured", "`azureml:<cluster>`; default `local`"),
    Key("resources", "honoured", "see below"),
    Key("settings", "honoured", "see below"),
    Key("torchyard", "honoured", "torchyard's own, see below"),
    Key("mini_batch_size", "honoured", "as in `settings`: the older form of the file"),
    Key("max_concurrency_per_instance", "honoured", "as in `settings`"),
    Key("output_action", "honoured", "as in `settings`"),
    Key("output_file_name", "honoured", "as in `settings`"),
    Key("retry_settings", "honoured", "as in `settings`"),
    Key("error_threshold", "honoured", "as in `settings`"),
    Key("logging_level", "honoured", "as in `settings`"),
    Key("component", "refused", _PIPELINE),
    Key("job_definition", "refused", _PIPELINE),
    Key("partition_keys", "refused", "files are divided by number: use `mini_batch_size`"),
    Key("provisioning_state", "refused", _READ_ONLY),
    Key("id", "refused", _READ_ONLY),
)

RESOURCES: tuple[Key, ...] = (
    Key("instance_count", "honoured", "nodes that score together; default 1"),
    Key("instance_type", "satisfied", "nodes are what the compute has"),
    Key("shm_size", "satisfied", _AS_A_JOB),
    Key("docker_args", "satisfied", _AS_A_JOB),
    Key("properties", "refused", "they are for Azure's own schedulers: remove them"),
)

SETTINGS: tuple[Key, ...] = (
    Key("mini_batch_size", "honoured", "files of one call of `run()`; default 10"),
    Key("max_concurrency_per_instance", "honoured", "scoring processes of a node; default 1"),
    Key("output_action", "honoured", "`append_row` (the default) or `summary_only`"),
    Key("output_file_name", "honoured", "default `predictions.csv`"),
    Key("retry_settings", "honoured", "see below"),
    Key(
        "error_threshold",
        "honoured",
        "files that may fail; more end the job; default -1: any number",
    ),
    Key("logging_level", "honoured", "`debug`, `info` (the default), `warning`, `error`"),
    Key("environment_variables", "honoured", "over those of the deployment"),
)

RETRY: tuple[Key, ...] = (
    Key("max_retries", "honoured", "tries of a mini-batch after its first; default 3"),
    Key("timeout", "honoured", "seconds that one call of `run()` may take; default 30"),
)

OWN: tuple[Key, ...] = (
    Key("take_over", "honoured", "`true`: another's becomes [yours](ownership.md); not kept"),
    Key(
        "split_failed_batches",
        "honoured",
        "`true` (the default): a mini-batch that fails is halved until only the files remain "
        "that can't be scored",
    ),
)

INVOCATION: tuple[Key, ...] = (
    Key("$schema", "satisfied", "for editors; not read"),
    Key("deployment_name", "honoured", "default: `defaults.deployment_name` of the endpoint"),
    Key("inputs", "honoured", "one input: `{type, path, mode}` by a name, as of a job"),
    Key("outputs", "honoured", "`score: {path}`: where the predictions go, as of a job"),
    Key("job_name", "honoured", "default: a generated one"),
    Key("experiment_name", "honoured", "default: the endpoint's name"),
    Key("display_name", "honoured", ""),
    Key("description", "honoured", ""),
    Key("tags", "honoured", "of the job"),
    Key("properties", "honoured", "of the job"),
    Key("settings", "honoured", "over those of the deployment"),
    Key("resources", "honoured", "over those of the deployment"),
    Key("instance_count", "honoured", "as in `resources`"),
    *(
        Key(key.name, "honoured", "as in `settings`")
        for key in SETTINGS
        if key.name != "environment_variables"
    ),
)

INPUT: tuple[Key, ...] = (
    Key("type", "honoured", "`uri_folder` (the default), `uri_file` or `mltable`"),
    Key("path", "honoured", "here, a datastore, an asset, another job's output, a URL"),
    Key("mode", "honoured", _AS_A_JOB),
)

OUTPUT: tuple[Key, ...] = (
    Key("type", "honoured", "`uri_folder`"),
    Key("path", "honoured", "`azureml://datastores/…`"),
    Key("mode", "honoured", "`rw_mount` or `upload`; either starts with an empty folder"),
    Key("name", "honoured", "registers the predictions as data"),
    Key("version", "honoured", "of what `name` registers"),
)

_INTRODUCTION = """
Made from the tables in `src/torchyard/batch_endpoints/spec/keys.py` by
`python -m torchyard.batch_endpoints.spec.keys`; edit those, not this. Files of Azure's batch
endpoints and model deployments are read as they are. Words of a fixed set are read in any case.
"""


def page() -> str:
    """docs/reference/batch-endpoint-file.md."""
    introduction = " ".join(_INTRODUCTION.strip().split("\n"))
    lines = ["# Batch endpoint files, key by key", "", introduction]
    for title, table in (
        ("The endpoint", ENDPOINT),
        ("`defaults`", DEFAULTS),
        ("The deployment", DEPLOYMENT),
        ("`settings`", SETTINGS),
        ("`settings.retry_settings`", RETRY),
        ("`resources`", RESOURCES),
        ("`torchyard`", OWN),
        ("The file of `invoke`", INVOCATION),
        ("`inputs.<name>`", INPUT),
        ("`outputs.score`", OUTPUT),
    ):
        lines += _table(title, table)
    return "\n".join(lines) + "\n"


def _table(title: str, keys: Iterable[Key]) -> Iterable[str]:
    yield from ("", f"## {title}", "", "| key | support | |", "|---|---|---|")
    for key in keys:
        yield f"| `{key.path}` | {key.support} | {key.note} |"


if __name__ == "__main__":
    print(page(), end="")
