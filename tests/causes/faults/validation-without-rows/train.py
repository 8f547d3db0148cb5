import os
import time

VALIDATION = 0.05


def split(rows):
    count = int(VALIDATION) * len(rows)
    return rows[count:], rows[:count]


def accuracy(weight, rows):
    right = sum((weight * x > 1) == label for x, label in rows)
    return right / max(1, len(rows))


def main():
    rank = int(os.environ["RANK"])
    rows = [(x / 50, x > 25) for x in range(rank, 200, 2)]
    training, validation = split(rows)
    weight = 0.1
    for epoch in range(15):
        loss = 0.0
        for x, label in training:
            error = weight * x - label
            weight -= 0.001 * error * x
            loss += error**2
        time.sleep(0.1)
        score = accuracy(weight, validation)
        mean = loss / len(training)
        print(f"epoch {epoch} loss {mean:.4f} validation accuracy {score:.4f}", flush=True)


if __name__ == "__main__":
    main()
