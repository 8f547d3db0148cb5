import os
import time

RANK = int(os.environ["RANK"])


def say(*words):
    print(f"[rank {RANK}]", *words, flush=True)


def train(rows, epochs):
    say(f"{len(rows)} rows")
    if RANK != 0:
        return
    weight = 0.0
    for epoch in range(epochs):
        loss = sum((weight * x - y) ** 2 for x, y in rows) / len(rows)
        weight -= 0.3 * sum(2 * x * (weight * x - y) for x, y in rows) / len(rows)
        time.sleep(0.1)
        say(f"epoch {epoch} loss {loss:.5f}")


if __name__ == "__main__":
    train([(x / 40, x / 20) for x in range(RANK, 40, 4)], epochs=25)
