"""Values of a job file that its table of keys decides: known keys, names, choices.

Owns: checking the keys of a mapping, or one value, against the table.
Leaves: texts and numbers to base/fields.py, what the values mean to job_spec.py and its neighbours.
Always: an error says where by `at`, and gives the nearest right word when there is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torchyard.base.errors import InvalidSpec, nearest
from torchyard.base.fields import described, text
from torchyard.jobs.spec import keys

NAME = re.compile(r"^[a-zA-Z0-9][\w-]{0,254}\Z", re.ASCII)
_EXPERIMENT = re.compile(r"^[a-zA-Z0-9](?:[\w -]{0,253}[\w-])?\Z", re.ASCII)

At = tuple[str | int, ...]

_EXAMPLES: Mapping[str | int, str] = {
    "command": "python train.py",
    "distribution": "{type: pytorch, process_count_per_instance: 2}",
    "resources": "{instance_count: 2}",
    "limits": "{timeout: 3600}",
    "outputs": "{NAME: {type: uri_folder}}",
    "queue_settings": "{job_tier: standard}",
    "services": "{NAME: {type: jupyter_lab}}",
}


def mapping(value: Any, at: At, subject: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        key = at[-1] if at else "command"
        raise InvalidSpec(
            f"{subject} must be a mapping of keys to values, not {described(value)}",
            f"for example `{key}: {_EXAMPLES.get(key, '{KEY: value}')}`",
            at=at,
        )
    return value


def section(job: Mapping[Any, Any], key: str) -> Mapping[Any, Any]:
    """The mapping below a key of the job, its keys checked; empty when it is left out."""
    body = mapping(job.get(key) or {}, (key,), f"`{key}`")
    known_keys(body, key, (key,))
    return body


_DATA = "data is an input: `inputs: {data: {path: azureml:NAME:VERSION}}`"
_PATH = "write `path: azureml:NAME:VERSION`, a URL or a local path"
_SIZE = "come with the size of the `compute`: see `yard compute list-sizes`"
_GPUS = f"GPUs {_SIZE}"
_PROCESSORS = f"processors, memory and disks {_SIZE}"
_VARIABLES = "environment variables are `environment_variables: {NAME: value}`"
_NODES = "write `resources: {instance_count: 2}`"
_PROCESSES = "write `process_count_per_instance`: processes of one node"
_SWEEP = "it is a key of sweeps: write `type: sweep` beside it"
# What older versions of Azure ML's schema, and other platforms, call what is served here.
_OTHER_NAMES = {
    ("", "arguments"): "write the arguments into `command`",
    ("", "args"): "write the arguments into `command`",
    ("", "script"): "write `command: python train.py`",
    ("", "source_directory"): "write `code: ./src`",
    ("", "target"): "write `compute: NAME`",
    ("", "data"): _DATA,
    ("", "dataset"): _DATA,
    ("", "datasets"): _DATA,
    ("", "experiment"): "write `experiment_name: NAME`",
    ("", "nodes"): _NODES,
    ("distribution", "nodes"): _NODES,
    ("resources", "nodes"): "write `instance_count`",
    ("", "trial"): _SWEEP,
    ("", "search_space"): _SWEEP,
    ("", "objective"): _SWEEP,
    ("", "algorithm"): "`algorithm` is for sweeps; write `sampling_algorithm` there",
    ("inputs.*", "data"): _PATH,
    ("inputs.*", "local_path"): _PATH,
    ("outputs.*", "data"): "write `path: azureml://datastores/NAME/paths/PATH`",
    ("outputs.*", "datastore"): "write `path: azureml://datastores/NAME/paths/PATH`",
    ("outputs.*", "local_path"): "leave it out: `${{outputs.NAME}}` stands for the folder",
    ("environment", "docker"): "write `image: NAME`, or `build: {path: FOLDER}` for a Dockerfile",
    ("inputs.*", "dataset"): _PATH,
    ("inputs.*", "datastore"): "write `path: azureml://datastores/NAME/paths/PATH`",
    ("inputs.*", "file"): _PATH,
    ("inputs.*", "folder"): _PATH,
    ("inputs.*", "uri"): _PATH,
}
# The same for keys that many name, each by its own words: what is found in the key without `_`.
_OTHER_WORDS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("^(?:env|environ|environment)?(?:vars?|variables?|envs?)$|^environ$", _VARIABLES),
        ("gpu|accelerator", _GPUS),
        ("cpu|memory", _PROCESSORS),
        (
            "process|nproc|worldsize",
            "write `distribution: {type: pytorch, process_count_per_instance: 2}`",
        ),
        ("node|instances|replica|machine|worker", _NODES),
        ("timelimit|walltime|maxtime|runtime|duration", "write `limits: {timeout: 3600}`"),
        (
            "^(?:hyper)?param(?:s|eters?)?$",
            "write `inputs: {NAME: value}`, and `${{inputs.NAME}}` in the command",
        ),
        ("^cmd|script|entry|program", "write `command: python train.py`"),
        ("cluster|partition", "write `compute: NAME`"),
        ("^(?:input|training)data|^datainput", _DATA),
        ("conda|docker|container|requirements", "write `environment: {conda_file: FILE}`"),
    ),
    "distribution": (
        ("process|nproc|rank|gpu|slot|pernode|worldsize", _PROCESSES),
        ("node|instance", _NODES),
    ),
    "resources": (
        ("gpu|accelerator", _GPUS),
        ("cpu|core|memory|ram|disk|storage", _PROCESSORS),
        (
            "process|nproc|slots",
            "write `distribution: {type: pytorch, process_count_per_instance: 2}`",
        ),
        ("vmsize|^size|sku", "write `instance_type`"),
        ("node|(?<!max)instances|replica|machine|worker|^count", "write `instance_count`"),
    ),
    "limits": (("time|duration|hour|minute|second", "write `timeout`, in seconds"),),
}


# Values of earlier versions, by key; without `_`, and in small letters.
_OLD_VALUES = {
    ("mode", "mount"): "ro_mount",
    ("type", "path"): "uri_folder",
    ("type", "anydirectory"): "uri_folder",
    ("type", "directory"): "uri_folder",
    ("type", "anyfile"): "uri_file",
    ("type", "str"): "string",
    ("type", "text"): "string",
    ("type", "int"): "integer",
    ("type", "float"): "number",
    ("type", "double"): "number",
    ("type", "bool"): "boolean",
    ("type", "dataset"): "mltable",
}
# Keys that were mappings in earlier versions of Azure ML's schema, by what to write today.
_OLD_MAPPINGS = {
    "code": ("local_path", "write `code: {}`"),
    "compute": (
        "target",
        "write `compute: {}`, and the nodes as `resources: {{instance_count: 2}}`",
    ),
}


def plain_text(job: Mapping[Any, Any], key: str) -> str:
    """The text of a key that earlier versions of the schema had a mapping for.

    Raises:
        InvalidSpec: it is not text; the hint has today's form.
    """
    value = job.get(key)
    if isinstance(value, Mapping) and key in _OLD_MAPPINGS:
        inner, hint = _OLD_MAPPINGS[key]
        written = value.get(inner)
        raise InvalidSpec(
            f"`{key}` must be text, not a mapping",
            hint.format(written if isinstance(written, str) else "…"),
            at=(key,),
        )
    return text(job, key, ())


def known_keys(body: Mapping[Any, Any], path: str, at: At) -> None:
    """Every key of `body` is in the table below `path` and not refused there."""
    known_keys = keys.below(path)
    for key, value in body.items():
        known_key = known_keys.get(key) if isinstance(key, str) else None
        if known_key is None:
            raise _unknown(str(key), _writable(known_keys), path, at, body)
        if known_key.support == "refused" and value not in (None, "", [], {}, False):
            shown = ".".join([*map(str, at), str(key)])
            raise InvalidSpec(
                f"`{shown}` is not served", known_key.note, code="not_served", at=(*at, str(key))
            )


def name(body: Mapping[Any, Any], key: str, at: At = ()) -> str:
    value = text(body, key, at)
    if value and not NAME.match(value):
        raise InvalidSpec(
            f"`{value[:80]}` is not a valid `{key}`",
            "up to 255 letters, digits, `_` and `-`, beginning with a letter or digit",
            at=(*at, key),
        )
    return value


def experiment_name(body: Mapping[Any, Any]) -> str:
    """As a name, but with spaces: those of MLflow and of Azure's own examples have them."""
    value = text(body, "experiment_name", ())
    if value and not _EXPERIMENT.match(value):
        raise InvalidSpec(
            f"`{value[:80]}` is not a valid `experiment_name`",
            "up to 255 letters, digits, `_`, `-` and spaces, beginning with a letter or digit",
            at=("experiment_name",),
        )
    return value


def choice(body: Mapping[Any, Any], key: str, at: At, path: str, default: str) -> keys.Key:
    """One of the table's values of `path`, refused ones too; matched in any case and in camelCase.

    Raises:
        InvalidSpec: the value does not exist.
    """
    choices = {known_key.value: known_key for known_key in keys.values(path)}
    written = text(body, key, at, default) or default
    plain = _plain(written)
    for value, known_key in choices.items():
        if plain == _plain(value):
            return known_key
    guess = _OLD_VALUES.get((key, plain), "")
    if guess not in choices:
        guess = nearest(written, choices)
    served = [value for value, known_key in choices.items() if known_key.support != "refused"]
    raise InvalidSpec(
        f"`{written}` is not a valid `{key}`",
        f"did you mean `{guess}`?" if guess else f"use one of: {', '.join(served)}",
        at=(*at, key),
    )


def served(body: Mapping[Any, Any], key: str, at: At, path: str, default: str) -> str:
    """The same, and a refused value is an error; empty when both it and the default are."""
    if not body.get(key) and not default:
        return ""
    chosen_key = choice(body, key, at, path, default)
    if chosen_key.support == "refused":
        raise refused(chosen_key, (*at, key))
    return chosen_key.value


def refused(key: keys.Key, at: At) -> InvalidSpec:
    return InvalidSpec(
        f"`{key.name}: {key.value}` is not served", key.note, code="not_served", at=at
    )


def _unknown(
    key: str, known_keys: Sequence[str], path: str, at: At, body: Mapping[Any, Any]
) -> InvalidSpec:
    shown = ", ".join(sorted(name for name in known_keys if not name.startswith(("$", "*"))))
    guess = nearest(key, [name for name in known_keys if name != "*"])
    homes = [home.replace("*", "<name>") for home in keys.homes(key) if home != path]
    hint = f"known keys: {shown}"
    inputs = body.get("inputs")
    near_input = nearest(key, list(map(str, inputs))) if isinstance(inputs, Mapping) else ""
    if (path, key) in _OTHER_NAMES:
        hint = _OTHER_NAMES[path, key]
    elif isinstance(inputs, Mapping) and key in inputs:
        hint = f"did you mean `inputs.{key}`?"
    elif guess and _plain(guess) in (_plain(key), f"{_plain(key)}s"):
        hint = f"did you mean `{guess}`?"
    elif path and key in keys.below(""):
        hint = f"`{key}` belongs at the top of the job file, not under `{at[0]}`"
    elif homes:
        hint = f"it belongs under `{homes[0]}`"
    elif words := _hint_by_words(path, key):
        hint = words
    elif guess:
        hint = f"did you mean `{guess}`?"
    elif not path and near_input:
        hint = f"did you mean `inputs.{near_input}`?"
    under = f" under `{'.'.join(map(str, at))}`" if at else ""
    error = InvalidSpec(f"unknown key `{key[:80]}`{under}", hint, at=(*at, key))
    error.meant_key = guess if hint == f"did you mean `{guess}`?" else ""
    return error


def _writable(known_keys: Mapping[str, keys.Key]) -> list[str]:
    return [name for name, key in known_keys.items() if key.note != keys.READ_ONLY]


def _hint_by_words(path: str, key: str) -> str:
    """What to write for a key that another platform has; empty if its words say nothing."""
    words = _OTHER_WORDS.get(path, ())
    return next((hint for pattern, hint in words if re.search(pattern, _plain(key))), "")


def _plain(word: str) -> str:
    return word.replace("_", "").replace("-", "").replace(" ", "").lower()
