import itertools
import time

from prefetch import Prefetcher


def main(steps=20):
    mean = 0.0
    for step, batch in enumerate(itertools.islice(Prefetcher(seed=1), steps)):
        mean += (sum(batch) / len(batch) - mean) / (step + 1)
        time.sleep(0.05)
        print(f"step {step} mean {mean:.3f}", flush=True)
    print("saved model.json", flush=True)


if __name__ == "__main__":
    main()
