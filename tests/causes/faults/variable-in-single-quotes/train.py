import argparse
import csv


def read(path):
    with open(path, newline="") as file:  # here
        return [(float(row["x"]), int(row["y"])) for row in csv.DictReader(file)]


parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()
rows = read(args.data)
print(f"{len(rows)} rows, {args.epochs} epochs")
