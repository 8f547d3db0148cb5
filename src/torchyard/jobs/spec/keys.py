"""Every key of a job file, and how it is supported.

Owns: the one table of keys and enum values with their support; the page of it in the docs.
Leaves: reading values to job_spec.py and its neighbours.
Always: a key is honoured, satisfied by what is there anyway, or refused by name; never ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from torchyard.jobs.spec import own_properties

Support = Literal["honoured", "satisfied", "refused"]


@dataclass(frozen=True)
class Key:
    """`path` has dots between keys and `*` for a name the user gives.

    `value` is one value of an enum key, empty for the key itself. The note of a refused one says
    what to do instead.
    """

    path: str
    support: Support
    note: str
    value: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def parent(self) -> str:
        return self.path.rpartition(".")[0]


_H: Support = "honoured"
_S: Support = "satisfied"
_R: Support = "refused"

READ_ONLY = "only the server writes it: remove it"
_RAY = "`type: ray` is not served"
_SSH = "no SSH server is started, and a notice says so: `yard job shell` opens a shell inside"

TABLE: tuple[Key, ...] = (
    Key("$schema", _S, "for editors; not read"),
    Key("type", _H, "may be left out", "command"),
    Key("type", _H, "many trials of one command: see the guide on sweeps", "sweep"),
    Key("type", _R, "submit its steps as jobs of `type: command`", "pipeline"),
    Key("type", _R, "run the framework from the command of a `type: command` job", "spark"),
    Key("type", _R, "run your own training as a `type: command` job", "automl"),
    Key("type", _R, "submit its steps as jobs of `type: command`", "parallel"),
    Key("type", _R, "run your own training as a `type: command` job", "finetuning"),
    Key("type", _R, "run your own training as a `type: command` job", "distillation"),
    Key("type", _R, "name the data as an input of a `type: command` job", "import"),
    Key("type", _R, "name the data as an input of a `type: command` job", "data_transfer"),
    Key("name", _H, "the job's own name, once in a workspace; made up when left out"),
    Key("display_name", _H, "what lists show; the name when left out"),
    Key("experiment_name", _H, "default: the name of the working folder"),
    Key("description", _H, ""),
    Key("tags", _H, "texts and numbers"),
    Key("properties", _H, "texts and numbers; git's are added by the client"),
    Key("command", _H, "runs in a shell; several lines and `$[[ … ]]` are fine"),
    Key("code", _H, "a folder or file here, or a git URL; a snapshot is taken"),
    Key("environment", _H, "a reference, `file:<path>`, or inline as below"),
    Key("environment.image", _H, "images that mean plain Python take no engine; others do"),
    Key("environment.conda_file", _H, "Python, pip and conda packages; a path or the content"),
    Key("environment.pip_requirements", _H, "torchyard's own: a path, or the lines themselves"),
    Key("environment.python", _H, 'a version beside `pip_requirements`, such as `"3.12"`'),
    Key("environment.build", _H, "built by podman or docker on the server's machine"),
    Key("environment.build.path", _H, "the build context: a folder"),
    Key("environment.build.dockerfile_path", _H, "`Dockerfile` when absent"),
    Key("environment.os_type", _H, "", "linux"),
    Key("environment.os_type", _R, "remove it: nodes run Linux", "windows"),
    Key("environment.name", _S, "an environment is known by its content"),
    Key("environment.version", _S, "an environment is known by its content"),
    Key("environment.description", _S, "description only"),
    Key("environment.tags", _S, "description only"),
    Key("environment.properties", _S, "description only"),
    Key("environment.inference_config", _S, "for endpoints; a job needs none"),
    Key("environment.datastore", _S, "definitions travel with the job"),
    Key("environment_variables", _H, "override those that the platform sets"),
    Key("distribution.type", _H, "one process a GPU, with torch's variables set", "pytorch"),
    Key("distribution.type", _H, "one mpirun over all nodes, which need Open MPI", "mpi"),
    Key("distribution.type", _H, "one process a task, with TF_CONFIG set", "tensorflow"),
    Key(
        "distribution.type",
        _R,
        "remove `distribution` and start Ray in your command with `ray.init()`",
        "ray",
    ),
    Key("distribution.process_count_per_instance", _H, "default 1"),
    Key(
        "distribution.communication_backend",
        _H,
        "torchyard's own: `nccl` or `gloo`, checked against the nodes before the ranks start; "
        "`type: pytorch`",
    ),
    Key("distribution.worker_count", _H, "of `type: tensorflow`; default: one a node"),
    Key("distribution.parameter_server_count", _H, "of `type: tensorflow`; default 0"),
    Key("distribution.port", _R, _RAY),
    Key("distribution.address", _R, _RAY),
    Key("distribution.include_dashboard", _R, _RAY),
    Key("distribution.dashboard_port", _R, _RAY),
    Key("distribution.head_node_additional_args", _R, _RAY),
    Key("distribution.worker_node_additional_args", _R, _RAY),
    Key(
        "compute",
        _H,
        "`azureml:<name>` or `<name>`; `local` when left out, or `serverless`; `auto` chooses",
    ),
    Key("resources.instance_count", _H, "default 1; of an elastic job, how many it starts with"),
    Key("resources.instance_type", _S, "nodes are what the compute has; said on the job"),
    Key("resources.shm_size", _S, "processes have all of the machine's `/dev/shm`"),
    Key(
        "resources.docker_args",
        _S,
        "`--shm-size`, `--ipc`, `--gpus`, `--runtime` and `--ulimit` ask for what processes have "
        "anyway; others are refused",
    ),
    Key("resources.properties", _R, "they are for Azure's own schedulers: remove them"),
    Key("resources.locations", _R, "nodes are where your machines are: remove it"),
    Key(
        "resources.max_instance_count",
        _R,
        "write `torchyard: {min_nodes: 1, max_nodes: 4}`",
    ),
    Key("limits.timeout", _H, "seconds from the start of the ranks; 0 means no limit"),
    Key("inputs.*", _H, "a number, a text, true or false; null leaves the input unset"),
    Key("inputs.*.value", _H, "the same, in the long form"),
    Key("inputs.*.path", _H, "here, a datastore, an asset, another job's output, a URL"),
    Key("inputs.*.type", _H, "the default", "uri_folder"),
    Key("inputs.*.type", _H, "", "uri_file"),
    Key("inputs.*.type", _H, "a folder with an `MLTable`", "mltable"),
    Key("inputs.*.type", _H, "`path` may be `azureml:<model>:<version>`", "custom_model"),
    Key("inputs.*.type", _H, "`path` may be `azureml:<model>:<version>`", "mlflow_model"),
    Key("inputs.*.type", _H, "`path` may be `azureml:<model>:<version>`", "triton_model"),
    Key("inputs.*.type", _H, "with `value`", "string"),
    Key("inputs.*.type", _H, "with `value`", "integer"),
    Key("inputs.*.type", _H, "with `value`", "number"),
    Key("inputs.*.type", _H, "with `value`", "boolean"),
    Key("inputs.*.mode", _H, "the default; refuses writes", "ro_mount"),
    Key("inputs.*.mode", _H, "a copy of the node's own", "download"),
    Key("inputs.*.mode", _H, "the command gets the URI", "direct"),
    Key("inputs.*.mode", _H, "`type: mltable` whose files lie beside it", "eval_mount"),
    Key("inputs.*.mode", _H, "`type: mltable` whose files lie beside it", "eval_download"),
    Key("inputs.*.mode", _R, "an input is only read: declare it under `outputs`", "rw_mount"),
    Key("inputs.*.mode", _R, "an input is only read: declare it under `outputs`", "upload"),
    Key(
        "inputs.*.path_on_compute",
        _R,
        "use `${{inputs.<name>}}` in the command: it stands for the path",
    ),
    Key("inputs.*.datastore", _S, "uploads are kept by content, for every datastore"),
    Key("outputs.*", _H, "null takes the defaults"),
    Key("outputs.*.type", _H, "the default", "uri_folder"),
    Key("outputs.*.type", _H, "", "uri_file"),
    Key("outputs.*.type", _H, "", "mltable"),
    Key("outputs.*.type", _H, "", "custom_model"),
    Key("outputs.*.type", _H, "", "mlflow_model"),
    Key("outputs.*.type", _H, "", "triton_model"),
    Key(
        "outputs.*.type",
        _H,
        "torchyard's own: one ONNX file, which `name` registers as a `custom_model`",
        "onnx_model",
    ),
    Key("outputs.*.mode", _H, "the default; shows what is at `path` already", "rw_mount"),
    Key("outputs.*.mode", _H, "the folder is empty when the job starts", "upload"),
    Key("outputs.*.mode", _H, "the command gets the URI", "direct"),
    Key("outputs.*.mode", _H, "as `rw_mount`", "mount"),
    Key(
        "outputs.*.path",
        _H,
        "`azureml://datastores/…`, with `${{name}}`, `${{output_name}}`, `${{default_datastore}}`",
    ),
    Key("outputs.*.name", _H, "registers the output when the job has completed"),
    Key("outputs.*.version", _H, "of what `name` registers; the next one when left out"),
    Key("services", _H, "programs beside the ranks; `yard job show-services` says where they are"),
    Key("services.*.type", _H, "JupyterLab, in the job's environment and folder", "jupyter_lab"),
    Key("services.*.type", _H, "TensorBoard over `log_dir`", "tensor_board"),
    Key("services.*.type", _H, "where the environment has `code-server`", "vs_code"),
    Key("services.*.type", _S, _SSH, "ssh"),
    Key(
        "services.*.type",
        _H,
        "what your script serves at `port`, or `properties.command` at `$PORT`; the default",
        "custom",
    ),
    Key("services.*.port", _H, "of `custom`; the others need none"),
    Key("services.*.nodes", _H, "`all`; the first node when left out"),
    Key("services.*.log_dir", _H, "of `tensor_board`, in the job's folder; all of it by default"),
    Key("services.*.ssh_public_keys", _S, _SSH),
    Key(
        "services.*.properties",
        _H,
        "`logDir` as `log_dir`; `command` of `custom`, or `socket: inherited`: the script is "
        "started with a Unix socket that already listens",
    ),
    Key("identity.type", _S, "a job acts with its owner's rights", "user_identity"),
    Key("identity.type", _S, "a job gets a token of its own", "aml_token"),
    Key("identity.type", _R, "remove it: there is no Azure identity to act as", "managed"),
    Key("identity.type", _R, "remove it: there is no Azure identity to act as", "managed_identity"),
    Key("identity.client_id", _R, "remove it: there is no Azure identity to act as"),
    Key("identity.object_id", _R, "remove it: there is no Azure identity to act as"),
    Key("identity.msi_resource_id", _R, "remove it: there is no Azure identity to act as"),
    Key("queue_settings.job_tier", _H, "may be preempted by any other job; comes last", "spot"),
    Key("queue_settings.job_tier", _S, "nobody but spot jobs is preempted", "basic"),
    Key("queue_settings.job_tier", _S, "nobody but spot jobs is preempted", "standard"),
    Key("queue_settings.job_tier", _S, "nobody but spot jobs is preempted", "premium"),
    Key("queue_settings.priority", _H, "the default", "medium"),
    Key("queue_settings.priority", _H, "after all others of its cluster", "low"),
    Key("queue_settings.priority", _H, "before all others of its cluster", "high"),
    Key("notification_settings.email_on", _H, "", "JobCompleted"),
    Key("notification_settings.email_on", _H, "", "JobFailed"),
    Key("notification_settings.email_on", _H, "", "JobCancelled"),
    Key(
        "notification_settings.emails",
        _H,
        "addresses, 499 characters at most; the server needs a mail server, or a notice says so",
    ),
    Key(
        "notification_settings.webhooks",
        _R,
        "no messages go to Azure DevOps: write `torchyard: {notify: [{url: https://…}]}`",
    ),
    Key("parent_job_name", _H, "a job of the same workspace"),
    Key("torchyard.*", _H, "torchyard's own: as the property `torchyard.<name>`, see below"),
    Key("id", _R, READ_ONLY),
    Key("status", _R, READ_ONLY),
    Key("creation_context", _R, READ_ONLY),
    Key("log_files", _R, READ_ONLY),
    Key("parameters", _R, READ_ONLY),
)


@cache
def below(parent: str) -> dict[str, Key]:
    """The keys that may stand directly below `parent`, by name; with a key's own support.

    A key of which only deeper ones or values are in the table counts as honoured.
    """
    keys: dict[str, Key] = {}
    start = f"{parent}." if parent else ""
    for key in TABLE:
        if not key.path.startswith(start):
            continue
        name, _, rest = key.path[len(start) :].partition(".")
        is_leaf = not rest and not key.value
        if is_leaf or name not in keys:
            keys[name] = key if is_leaf else Key(f"{start}{name}", _H, "")
    return keys


def values(path: str) -> list[Key]:
    """The values of an enum key, as the table lists them."""
    return [key for key in TABLE if key.path == path and key.value]


def homes(name: str) -> list[str]:
    """Where a key of that name does something."""
    parents = [key.parent for key in TABLE if key.name == name and key.parent and key.support == _H]
    return list(dict.fromkeys(parents))


def page() -> str:
    """The page of the docs."""
    lines = [
        "# The job file, key by key",
        "",
        "Made from the table in `src/torchyard/jobs/spec/keys.py` by "
        "`python -m torchyard.jobs.spec.keys`; edit that, not this.",
        "",
        "*honoured*: it does what it says. *satisfied*: what it asks for holds anyway. *refused*: "
        "the job is not accepted, and the message says what to do instead. Any other key is "
        "refused as unknown, with the nearest one that there is. Values of a fixed set are read "
        "in any case, with `_`, `-` or in camelCase.",
        "",
        "`${{inputs.<name>}}` and `${{outputs.<name>}}` are resolved in `command` and in the "
        "values of `environment_variables`; what `outputs.<name>.path` can use stands there. In "
        "`description`, `display_name`, `tags` and `properties`, which no process gets, an "
        "expression is text, and anywhere else it is refused with its line.",
    ]
    for title, rows in _sections():
        lines += ["", f"## {title}", "", "| key | support | |", "|---|---|---|"]
        lines += [_line(key) for key in rows]
    lines += [
        "",
        "## Properties that torchyard reads",
        "",
        "Any other below `torchyard.` is refused; the rest of `properties` is yours.",
        "",
        "| property | says |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {says} |" for name, says in own_properties.TABLE.items()]
    return "\n".join(lines) + "\n"


def _sections() -> list[tuple[str, Sequence[Key]]]:
    groups: dict[str, list[Key]] = {"The job": []}
    for key in TABLE:
        top, dot, _ = key.path.partition(".")
        groups.setdefault(f"`{top}`" if dot else "The job", []).append(key)
    return list(groups.items())


def _line(key: Key) -> str:
    path = key.path.replace("*", "<name>")
    shown = f"`{path}: {key.value}`" if key.value else f"`{path}`"
    return f"| {shown} | {key.support} | {key.note.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    print(page(), end="")
