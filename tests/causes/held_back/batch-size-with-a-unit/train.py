import argparse
import os


def parse():
    parser = argparse.ArgumentParser(description="Train the tagger.")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=64, help="rows a rank")
    parser.add_argument("--epochs", type=int, default=3)
    return parser.parse_args()


options = parse()
for epoch in range(options.epochs):
    print(f"rank {os.environ['RANK']} epoch {epoch} of {options.epochs}")
