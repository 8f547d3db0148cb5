import os
import threading
import time

from actors import Actor

RANK = int(os.environ["RANK"])


class Maze:
    def __init__(self, number):
        self.number, self.steps = number, 0

    def step(self):
        self.steps += 1
        if RANK == 1 and self.number == 2 and self.steps == 8:
            return {"observation": [0, 0], "truncated": True}
        return {"observation": [self.steps, 0], "reward": 1.0}


def main():
    barrier = threading.Barrier(4)
    actors = [Actor(number, Maze(number), barrier) for number in range(3)]
    for actor in actors:
        actor.start()
    for step in range(30):
        barrier.wait(timeout=1.5)
        time.sleep(0.05)
        print(f"rank {RANK} update {step} reward {sum(a.total for a in actors):.1f}", flush=True)


if __name__ == "__main__":
    main()
