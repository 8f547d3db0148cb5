import os
import time

from checkpoints import Checkpoints


def main():
    rank = int(os.environ["RANK"])
    checkpoints = Checkpoints("checkpoints") if rank == 0 else None
    for step in range(40):
        # Begins to overfit at step 8.
        loss = 0.3 + 0.01 * abs(step - 8)
        time.sleep(0.03)
        print(f"rank {rank} step {step} validation loss {loss:.3f}", flush=True)
        if checkpoints and step % 4 == 0:
            checkpoints.save(step, [step / 10, 1.0], loss)
    if checkpoints:
        print(f"test score {sum(checkpoints.load_best()):.3f}", flush=True)


if __name__ == "__main__":
    main()
