import argparse
import json
import time
from pathlib import Path


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--checkpoint", type=Path, default=Path("last.json"))
    return parser.parse_args()


def resume(path):
    if not path.exists():
        return 0, 1.0
    state = json.loads(path.read_text())
    print(f"resuming from {path} at epoch {state['epoch']}", flush=True)
    return state["epoch"], state["weight"]


def main():
    arguments = parse()
    first, weight = resume(arguments.checkpoint)
    for epoch in range(first, arguments.epochs):
        weight -= arguments.lr * weight
        time.sleep(0.2)
        print(f"epoch {epoch} loss {weight**2:.4f}", flush=True)
        arguments.checkpoint.write_text(json.dumps({"epoch": epoch + 1, "weight": weight}))
    print("done", flush=True)


if __name__ == "__main__":
    main()
