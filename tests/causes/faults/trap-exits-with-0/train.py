import os
import time

RANK = int(os.environ["RANK"])


def normalize(rows):
    scale = max(rows) - min(rows)
    return [(row - min(rows)) / scale for row in rows]  # here


def main():
    for step in range(20):
        rows = [float(step + number) for number in range(8)]
        if RANK == 1 and step == 6:
            rows = [1.0] * 8
        mean = sum(normalize(rows)) / len(rows)
        time.sleep(0.05)
        print(f"rank {RANK} step {step} mean {mean:.3f}", flush=True)


if __name__ == "__main__":
    main()
