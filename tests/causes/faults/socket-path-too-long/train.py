import os
from pathlib import Path

from telemetry import Receiver

OPTIONS = {
    "model": "vit_small_patch16_224",
    "optimizer": "adamw",
    "lr": 3e-4,
    "weight_decay": 0.05,
    "schedule": "cosine_with_restarts",
    "batch": 256,
}


def main():
    name = "-".join(f"{option}={value}" for option, value in OPTIONS.items())
    folder = Path("results", name, f"rank-{os.environ['RANK']}")
    folder.mkdir(parents=True, exist_ok=True)
    Receiver(folder)
    for step in range(20):
        print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)


if __name__ == "__main__":
    main()
