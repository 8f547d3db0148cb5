"""What the clusters of one machine share, and how much of it there is.

Owns: the file `machine.yml` in the home folder.
Leaves: what a node takes to shares.py, who gets it to queue.py.
Always: names that are left out are not limited: clusters larger than the machine can be tried.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput, did_you_mean
from torchyard.jobs.services import Services

FILE = "machine.yml"
# The file's names, and the names and units used for counting.
_NAMES = {"nodes": ("nodes", 1), "cores": ("cores", 1), "gpus": ("gpus", 1)}
_NAMES["memory_gib"] = ("memory_mb", 1024)


def read(home: Path) -> dict[str, int]:
    """The bounds that the server's owner has set; empty without the file.

    Raises:
        InvalidInput: the file cannot be read as limits.
    """
    file = home / FILE
    try:
        text = file.read_text()
    except FileNotFoundError:
        return {}
    import yaml  # Most homes have no such file.

    try:
        document = yaml.safe_load(text) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"`{file}` is not valid YAML: {error}", "write `nodes: 4`") from error
    if not isinstance(document, dict):
        raise InvalidInput(f"`{file}` is not a mapping of names to numbers", "write `nodes: 4`")
    return dict(_bound(file, name, value) for name, value in document.items())


def bounds(services: Services) -> dict[str, int]:
    """What the machine has of what is bounded on it, its devices with the rest."""
    amounts = dict(services.machine)
    there = len(services.devices.whole_devices)
    if there:
        amounts["gpus"] = min(there, amounts.get("gpus", there))
    return amounts


def _bound(file: Path, name: Any, value: Any) -> tuple[str, int]:
    if name not in _NAMES:
        names = ", ".join(_NAMES)
        raise InvalidInput(
            f"`{file}` has the unknown key `{name}`",
            did_you_mean(str(name), _NAMES, f"known keys: {names}"),
        )
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(
            f"`{name}` in `{file}` must be a whole number of 1 or more, not `{value}`",
            f"for example `{name}: 4`",
        )
    counted_as, unit = _NAMES[name]
    return counted_as, value * unit
