import math
import os
import time

import data


def loss_of(scores, labels):
    used = [label for label in labels if label != data.IGNORED]
    total = sum(math.exp(score) for score in scores)
    return sum(math.log(total) - scores[label] for label in used) / max(1, len(used))


def main():
    rank = int(os.environ["RANK"])
    scores = [0.3, 0.1, -0.2]
    for step, labels in data.batches(rank):
        loss = loss_of(scores, labels)
        scores = [score + 0.1 * labels.count(number) / 8 for number, score in enumerate(scores)]
        time.sleep(0.05)
        print(f"step {step} loss {loss:.4f}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
