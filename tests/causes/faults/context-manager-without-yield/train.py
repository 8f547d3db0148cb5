import contextlib
import os
import time


@contextlib.contextmanager
def profiled(enabled, path):
    if not enabled:
        return  # here
    start = time.perf_counter()
    yield
    with open(path, "a") as file:
        file.write(f"{time.perf_counter() - start:.6f}\n")


def train(rank, steps=30):
    weight = 1.0
    for step in range(steps):
        with profiled(enabled=rank == 0, path="profile.txt"):  # here
            weight *= 0.9
            time.sleep(0.05)
        print(f"rank {rank} step {step} loss {weight**2:.5f}", flush=True)


if __name__ == "__main__":
    train(int(os.environ["RANK"]))
