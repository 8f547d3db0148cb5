import csv
import functools
import logging


def safe(function):
    @functools.wraps(function)
    def call(*args, **options):
        try:
            return function(*args, **options)
        except Exception:
            logging.exception("%s failed", function.__name__)

    return call


@safe
def load(path, target):
    with open(path, newline="") as file:
        reader = csv.DictReader(file)
        if target not in reader.fieldnames:
            raise ValueError(f"{path} has no column {target!r}")  # here
        rows = list(reader)
    return [row["item"] for row in rows], [float(row[target]) for row in rows]


def main():
    items, targets = load("ratings.csv", "score")  # here
    print(f"{len(items)} items, mean {sum(targets) / len(targets):.2f}")


main()
