"""Sizes for people.

Owns: the units, which are powers of 1000, as on the web page.
Leaves: limits and memory, which people give in MiB and GiB, to those who read them.
Always: the same size is written alike everywhere.
"""

from __future__ import annotations


def size_text(count: float) -> str:
    """Bytes for people: `512 B`, `1.4 MB`, `150 GB`."""
    number, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    # What would round to 1000 is one of the next unit.
    while number >= 999.5 and units[1:]:
        number /= 1000
        units.pop(0)
    digits = 0 if units[0] == "B" or number >= 99.95 else 1
    return f"{number:,.{digits}f} {units[0]}"
