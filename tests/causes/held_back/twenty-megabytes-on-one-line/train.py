import os
import sys
import time

RED, PLAIN = "\x1b[1;31m", "\x1b[0m"
WIDTH = 400


def progress(done, total):
    bar = "█" * (WIDTH * done // total)
    sys.stdout.write(f"\r\x1b[32m{bar:·<{WIDTH}}\x1b[0m {done}/{total}")


def learning_rate(step, warmup=20_000):
    if step >= warmup:
        raise ValueError(f"{RED}Für Schritt {step} ist keine Lernrate festgelegt{PLAIN}")  # here
    return 0.1 * step / warmup


if os.environ["RANK"] == "1":
    time.sleep(15)
    sys.exit()
weight = 1.0
for step in range(30_000):
    weight -= learning_rate(step) * weight * 1e-3
    progress(step, 30_000)
