import json
from pathlib import Path


def resolve(value, choices):
    """A value of its own, or a reference to one of the choices."""
    if not isinstance(value, dict):
        return value
    return choices[value["$ref"]]  # here


def load(path):
    config = json.loads(Path(path).read_text())
    config["optimizer"] = resolve(config["optimizer"], config["optimizers"])
    return config
