"""Node sizes: their names, cores, memory and GPUs.

Owns: the table of Azure's sizes, custom sizes, matching names however they are written.
Leaves: what a size means on a machine to the engines and the worker.
Always: names match in any case, with or without `Standard_`, with any separators; the refusal of
an unknown name suggests the nearest.

Sources: the pages "Sizes for virtual machines" of Azure's documentation, by family; memory in
GiB as there. A size with a fraction of a GPU counts as one GPU: devices are never shared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput, InvalidSpec, did_you_mean, nearest

OWN_FILE = "sizes.yml"
_GIB = 1 << 30
_KEYS = ("cores", "memory_gb", "gpus", "gpu_kind")


@dataclass(frozen=True)
class Size:
    """What a node of this size has. `custom`: defined in `sizes.yml`, not by Azure."""

    name: str
    cores: int
    memory_bytes: int
    gpus: int = 0
    gpu_kind: str = ""
    custom: bool = False


# name cores memory_gib [gpus kind], separated by commas.
_GPU_SIZES = """
NC6 6 56 1 K80, NC12 12 112 2 K80, NC24 24 224 4 K80, NC24r 24 224 4 K80,
NC6_Promo 6 56 1 K80, NC12_Promo 12 112 2 K80, NC24_Promo 24 224 4 K80,
NC6s_v2 6 112 1 P100, NC12s_v2 12 224 2 P100, NC24s_v2 24 448 4 P100, NC24rs_v2 24 448 4 P100,
NC6s_v3 6 112 1 V100, NC12s_v3 12 224 2 V100, NC24s_v3 24 448 4 V100, NC24rs_v3 24 448 4 V100,
NC4as_T4_v3 4 28 1 T4, NC8as_T4_v3 8 56 1 T4, NC16as_T4_v3 16 110 1 T4, NC64as_T4_v3 64 440 4 T4,
NC24ads_A100_v4 24 220 1 A100, NC48ads_A100_v4 48 440 2 A100, NC96ads_A100_v4 96 880 4 A100,
NC40ads_H100_v5 40 320 1 H100, NC80adis_H100_v5 80 640 2 H100,
ND6s 6 112 1 P40, ND12s 12 224 2 P40, ND24s 24 448 4 P40, ND24rs 24 448 4 P40,
ND40rs_v2 40 672 8 V100, ND40s_v3 40 672 8 V100,
ND96asr_v4 96 900 8 A100, ND96asr_A100_v4 96 900 8 A100,
ND96ams_A100_v4 96 1900 8 A100, ND96amsr_A100_v4 96 1900 8 A100,
ND96is_H100_v5 96 1900 8 H100, ND96isr_H100_v5 96 1900 8 H100, ND96isr_H200_v5 96 1850 8 H200,
ND96is_MI300X_v5 96 1850 8 MI300X, ND96isr_MI300X_v5 96 1850 8 MI300X,
NV6 6 56 1 M60, NV12 12 112 2 M60, NV24 24 224 4 M60,
NV6s_v2 6 112 1 M60, NV12s_v2 12 224 2 M60, NV24s_v2 24 448 4 M60,
NV12s_v3 12 112 1 M60, NV24s_v3 24 224 2 M60, NV48s_v3 48 448 4 M60,
NV32as_v4 32 112 1 MI25,
NV6ads_A10_v5 6 55 1 A10, NV12ads_A10_v5 12 110 1 A10, NV18ads_A10_v5 18 220 1 A10,
NV36ads_A10_v5 36 440 1 A10, NV36adms_A10_v5 36 880 1 A10, NV72ads_A10_v5 72 880 2 A10
"""
_CPU_SIZES = """
A1 1 1.75, A2 2 3.5, A3 4 7, A4 8 14, A5 2 14, A6 4 28, A7 8 56,
A1_v2 1 2, A2_v2 2 4, A4_v2 4 8, A8_v2 8 16, A2m_v2 2 16, A4m_v2 4 32, A8m_v2 8 64,
B1s 1 1, B1ms 1 2, B2s 2 4, B2ms 2 8, B4ms 4 16, B8ms 8 32, B12ms 12 48, B16ms 16 64, B20ms 20 80,
D1 1 3.5, D2 2 7, D3 4 14, D4 8 28, D11 2 14, D12 4 28, D13 8 56, D14 16 112,
DS1 1 3.5, DS2 2 7, DS3 4 14, DS4 8 28, DS11 2 14, DS12 4 28, DS13 8 56, DS14 16 112,
D1_v2 1 3.5, D2_v2 2 7, D3_v2 4 14, D4_v2 8 28, D5_v2 16 56,
D11_v2 2 14, D12_v2 4 28, D13_v2 8 56, D14_v2 16 112, D15_v2 20 140,
DS1_v2 1 3.5, DS2_v2 2 7, DS3_v2 4 14, DS4_v2 8 28, DS5_v2 16 56,
DS11_v2 2 14, DS12_v2 4 28, DS13_v2 8 56, DS14_v2 16 112, DS15_v2 20 140,
F1 1 2, F2 2 4, F4 4 8, F8 8 16, F16 16 32, F1s 1 2, F2s 2 4, F4s 4 8, F8s 8 16, F16s 16 32,
H8 8 56, H16 16 112, H8m 8 112, H16m 16 224, H16r 16 112, H16mr 16 224,
HB60rs 60 228, HB120rs_v2 120 456, HB120rs_v3 120 448, HB176rs_v4 176 768, HC44rs 44 352,
L4s 4 32, L8s 8 64, L16s 16 128, L32s 32 256,
M8ms 8 219, M16ms 16 438, M32ms 32 875, M64s 64 1024, M64ms 64 1792, M128s 128 2048, M128ms 128 3892
"""
# Families with memory in proportion to cores: pattern, GiB per core, cores. Exceptions are in the
# tables above.
_FAMILIES: tuple[tuple[str, float, tuple[int, ...]], ...] = (
    *(
        (f"D{{}}{letters}_{version}", 4, (2, 4, 8, 16, 32, 48, 64))
        for version, kinds in (
            ("v3", ("", "s")),
            ("v4", ("", "s", "d", "ds", "a", "as")),
            ("v5", ("", "s", "d", "ds", "as", "ads")),
            ("v6", ("s", "ds", "as", "ads")),
        )
        for letters in kinds
    ),
    *((f"D{{}}{letters}_v5", 4, (96,)) for letters in ("", "s", "d", "ds", "as", "ads")),
    *(
        (f"E{{}}{letters}_{version}", 8, (2, 4, 8, 16, 20, 32, 48))
        for version, kinds in (
            ("v3", ("", "s")),
            ("v4", ("", "s", "d", "ds", "a", "as")),
            ("v5", ("", "s", "d", "ds", "as", "ads")),
            ("v6", ("s", "ds", "as", "ads")),
        )
        for letters in kinds
    ),
    *((f"E{{}}{letters}_v3", 6.75, (64,)) for letters in ("", "s")),
    *((f"E{{}}{letters}_v4", 7.875, (64,)) for letters in ("", "s", "d", "ds", "a", "as")),
    *((f"E{{}}{letters}_v5", 8, (64,)) for letters in ("", "s", "d", "ds", "as", "ads")),
    ("F{}s_v2", 2, (2, 4, 8, 16, 32, 48, 64, 72)),
    ("L{}s_v2", 8, (8, 16, 32, 48, 64, 80)),
    ("L{}s_v3", 8, (8, 16, 32, 48, 64, 80)),
)


def all_sizes(home: Path | None = None) -> dict[str, Size]:
    """Every size, by its name as `key` writes it: Azure's, and those of `sizes.yml`.

    Raises:
        InvalidInput: the file is not valid.
    """
    custom = _own(home / OWN_FILE) if home is not None else {}
    return {**_azures(), **custom}


def find(name: str, known_sizes: Mapping[str, Size] | None = None) -> Size:
    """
    Args:
        known_sizes: as `all_sizes` returns them; Azure's by default.

    Raises:
        InvalidSpec: no such size; the hint names the nearest.
    """
    sizes = _azures() if known_sizes is None else known_sizes
    size = sizes.get(key(name))
    if size is not None:
        return size
    guess = nearest(key(name), sizes)
    hint = f"did you mean `{sizes[guess].name}`? " if guess else ""
    raise InvalidSpec(
        f"there is no size `{name[:64]}`",
        f"{hint}list sizes with `yard compute sizes`; define your own in `{OWN_FILE}`",
        code="unknown_size",
        at=["size"],
    )


def key(name: str) -> str:
    """The form that all spellings of a name have in common."""
    plain = re.sub(r"[\s_\-]+", "", name.lower())
    return plain.removeprefix("standard").removeprefix("basic") or plain


@cache
def _azures() -> dict[str, Size]:
    rows: list[Size] = []
    for line in ",".join((_GPU_SIZES, _CPU_SIZES)).split(","):
        name, cores, memory_gib, *gpu = line.split()
        gpus, kind = (int(gpu[0]), gpu[1]) if gpu else (0, "")
        rows.append(_size(name, int(cores), float(memory_gib), gpus, kind))
    for pattern, gib_per_core, core_counts in _FAMILIES:
        rows += [_size(pattern.format(cores), cores, cores * gib_per_core) for cores in core_counts]
    table = {key(size.name): size for size in rows}
    assert len(table) == len(rows), "two sizes of one name"
    return table


def _size(name: str, cores: int, memory_gib: float, gpus: int = 0, kind: str = "") -> Size:
    return Size(f"Standard_{name}", cores, int(memory_gib * _GIB), gpus, kind)


def _own(file: Path) -> dict[str, Size]:
    import yaml

    try:
        body = yaml.safe_load(file.read_text("utf-8")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        detail = " ".join(str(error).split())
        raise InvalidInput(f"the sizes in `{file}` can't be read: {detail}", _EXAMPLE) from error
    if not isinstance(body, dict):
        raise InvalidInput(f"`{file}` must be a mapping of names to sizes", _EXAMPLE)
    sizes = {}
    for name, value in body.items():
        if key(str(name)) in _azures():
            raise InvalidInput(
                f"`{name}` in `{file}` is one of Azure's sizes", "choose another name"
            )
        sizes[key(str(name))] = _own_size(file, str(name), value)
    return sizes


_EXAMPLE = "for example `workstation: {cores: 16, memory_gb: 64, gpus: 2, gpu_kind: RTX4090}`"


def _own_size(file: Path, name: str, value: Any) -> Size:
    where = f"size `{name}` in `{file}`"
    if not isinstance(value, dict):
        raise InvalidInput(f"{where} must be a mapping", _EXAMPLE)
    for field in value:
        if field not in _KEYS:
            raise InvalidInput(
                f"{where} has an unknown key `{field}`",
                did_you_mean(str(field), _KEYS, _EXAMPLE),
            )
    numbers = {}
    for part, least in (("cores", 1), ("memory_gb", 0.1), ("gpus", 0)):
        number = value.get(part, 0)
        if isinstance(number, bool) or not isinstance(number, int | float) or number < least:
            raise InvalidInput(f"`{part}` of {where} must be a number of {least} or more")
        numbers[part] = number
    memory_bytes = int(numbers["memory_gb"] * _GIB)
    kind = str(value.get("gpu_kind", ""))
    return Size(name, int(numbers["cores"]), memory_bytes, int(numbers["gpus"]), kind, custom=True)
