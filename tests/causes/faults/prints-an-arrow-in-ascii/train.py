import os
import time

RANK = int(os.environ["RANK"])


class Best:
    def __init__(self):
        self.score = 0.5

    def update(self, epoch, score):
        if score <= self.score:
            return
        if RANK == 0:
            print(f"epoch {epoch}: better, {self.score:.3f} → {score:.3f}", flush=True)  # here
        self.score = score


def main():
    best = Best()
    for epoch in range(20):
        time.sleep(0.1)
        score = 0.4 + 0.012 * epoch
        print(f"rank {RANK} epoch {epoch} score {score:.3f}", flush=True)
        best.update(epoch, score)


if __name__ == "__main__":
    main()
