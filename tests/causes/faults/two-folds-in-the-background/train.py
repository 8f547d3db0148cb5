import argparse
import time

ROWS = [(number, number % 3 * 2) for number in range(30)]


def rows_of(fold):
    rows = [value for value, part in ROWS if part == fold]
    if not rows:
        raise ValueError(f"fold {fold} has no rows")  # here
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fold", type=int, required=True)
    fold = parser.parse_args().fold
    rows = rows_of(fold)
    for epoch in range(5):
        time.sleep(0.1)
        print(f"fold {fold} epoch {epoch}: {len(rows)} rows", flush=True)


if __name__ == "__main__":
    main()
