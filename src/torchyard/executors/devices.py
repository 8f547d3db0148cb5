"""The GPUs of this machine.

Owns: listing them, and their names.
Leaves: who may have which to device_locks.py, how many a job gets to jobs/.
Always: only the vendor's own listing program runs, and a machine without one has no GPUs; a GPU's
index is the one that the listing program shows, its UUID survives restarts. MIG is left as it is:
a split GPU is one device here, and its parts are not assigned.

Sources: `nvidia-smi --help-query-gpu`; `rocm-smi --help`. TORCHYARD_DEVICES names pretended ones,
for tests and rehearsals: `4`, or `a,b` by their UUIDs.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

NVIDIA, AMD, PRETENDED = "nvidia", "amd", "pretended"
VARIABLE = "TORCHYARD_DEVICES"
_LIMIT_S = 30.0
_QUERY = "index,uuid,name,memory.total,mig.mode.current"
_MOST_PRETENDED = 4096

Run = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class Device:
    """One GPU. `split` means that MIG is on: it can't be used as a whole."""

    kind: str
    index: int
    uuid: str
    name: str = ""
    memory_bytes: int = 0
    split: bool = False


def find(environ: Mapping[str, str], run: Run | None = None) -> tuple[Device, ...]:
    """The GPUs of this machine, by index, one vendor after the other.

    Args:
        environ: where the programs are found, and pretended devices.
        run: runs a program and returns its output; empty when it is missing or fails.
    """
    pretended = environ.get(VARIABLE, "").strip()
    if pretended:
        return _pretended(pretended)
    output_of = run or (lambda command: _run(command, environ))
    nvidia = of_nvidia(
        output_of(["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"])
    )
    command = ["rocm-smi", "--showuniqueid", "--showproductname", "--showmeminfo", "vram", "--json"]
    return (*nvidia, *of_amd(output_of(command)))


def of_nvidia(output: str) -> tuple[Device, ...]:
    """Read nvidia-smi's CSV; fields that a GPU does not have are `[N/A]` there."""
    devices = []
    for row in csv.reader(output.splitlines(), skipinitialspace=True):
        # Errors are on standard output, too: "NVIDIA-SMI has failed because …".
        if len(row) >= 4 and row[0].strip().isdigit() and row[1].startswith("GPU-"):
            megabytes = row[3].strip()
            devices.append(
                Device(
                    NVIDIA,
                    int(row[0]),
                    row[1].strip(),
                    row[2].strip(),
                    int(megabytes) << 20 if megabytes.isdigit() else 0,
                    split=len(row) > 4 and row[4].strip() == "Enabled",
                )
            )
    return tuple(sorted(devices, key=lambda device: device.index))


def of_amd(output: str) -> tuple[Device, ...]:
    """Read rocm-smi's JSON: one object a card, `card0` and so on; its keys differ by version."""
    # Warnings come before it.
    start = output.find("{")
    try:
        cards = json.loads(output[start:]) if start >= 0 else {}
    except ValueError:
        return ()
    devices = []
    for card, fields in cards.items() if isinstance(cards, dict) else ():
        number = re.fullmatch(r"card(\d+)", card)
        if number is None or not isinstance(fields, dict):
            continue
        unique = str(fields.get("Unique ID", "")).removeprefix("0x")
        uuid = f"GPU-{unique}" if re.fullmatch(r"[0-9a-fA-F]{8,}", unique) else f"amd-{number[1]}"
        name = (
            fields.get("Card Series") or fields.get("Card series") or fields.get("Card SKU") or ""
        )
        memory = str(fields.get("VRAM Total Memory (B)", ""))
        memory_bytes = int(memory) if memory.isdigit() else 0
        devices.append(Device(AMD, int(number[1]), uuid, str(name), memory_bytes))
    return tuple(sorted(devices, key=lambda device: device.index))


def _pretended(text: str) -> tuple[Device, ...]:
    if text.isdigit():
        count = min(int(text), _MOST_PRETENDED)
        uuids = [f"pretended-{number}" for number in range(count)]
    else:
        uuids = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(
        Device(PRETENDED, index, uuid, "pretended")
        for index, uuid in enumerate(dict.fromkeys(uuids))
    )


def _run(command: Sequence[str], environ: Mapping[str, str]) -> str:
    program = shutil.which(command[0], path=environ.get("PATH", ""))
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            env=dict(environ),
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
