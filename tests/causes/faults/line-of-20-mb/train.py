import sys

UNITS = {"m": 1.0, "km": 1000.0}


def to_metres(value, unit):
    if unit not in UNITS:
        raise ValueError(f"unknown unit '{unit}'")  # here
    return value * UNITS[unit]


rows = [to_metres(number, "km") for number in range(1000)]
print(rows * 2200, flush=True)
print(rows[:10], file=sys.stderr, flush=True)
to_metres(3, "furlong")
