import os
import time

from events import EventWriter


def train(rank, steps=25):
    writer = EventWriter("events.jsonl") if rank == 0 else None
    for step in range(steps):
        loss = 2.0 / (step + 1)
        if writer:
            writer.add_scalar("loss", loss, step)
        print(f"step {step} loss {loss:.4f}", flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    train(int(os.environ["RANK"]))
    print("training finished", flush=True)
