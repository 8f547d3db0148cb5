import os
import sys
import traceback

RED, DIM, OFF = "\x1b[1;31m", "\x1b[2m", "\x1b[0m"


def draw(kind, error, trace):
    print(f"\n{RED}╭{'─' * 20} Traceback {'─' * 20}╮{OFF}", file=sys.stderr)
    for line in "".join(traceback.format_tb(trace)).splitlines():
        print(f"{RED}│{OFF} {DIM}{line:<50}{OFF} {RED}│{OFF}", file=sys.stderr)
    print(f"{RED}╰{'─' * 51}╯\n{kind.__name__}: {OFF}{error}", file=sys.stderr)


sys.excepthook = draw
for step in range(60):
    bar = "█" * (step // 2)
    print(f"\r\x1b[2K\x1b[32m{bar:<30}{OFF} {step}/60", end="", flush=True)
    if step == 42 and os.environ["RANK"] == "1":
        raise ValueError("negative width -3")  # here
