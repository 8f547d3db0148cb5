import os
import time

from history import History


def main():
    rank = int(os.environ["RANK"])
    history = History(f"losses-{rank}.txt")
    weight = 2.0 + 0.1 * rank
    for step in range(44):
        weight -= 0.03 * weight
        history.add(weight**2)
        time.sleep(0.01)
        print(f"step {step} loss {weight**2:.5f} mean {history.mean():.5f}", flush=True)


if __name__ == "__main__":
    main()
