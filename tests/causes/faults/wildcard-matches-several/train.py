import argparse
import json
from pathlib import Path


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--resume", type=Path, help="a checkpoint to go on from")
    return parser.parse_args()


def main():
    args = parse()
    state = json.loads(args.resume.read_text()) if args.resume else {"epoch": 0, "weight": 1.0}
    for epoch in range(state["epoch"], args.epochs):
        state["weight"] *= 0.9
        print(f"epoch {epoch} loss {state['weight'] ** 2:.4f}", flush=True)


if __name__ == "__main__":
    main()
