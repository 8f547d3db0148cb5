import os
import time

from codec import Decoder

RANK = int(os.environ["RANK"])


def main():
    decoder = Decoder(seats=1)
    for step in range(30):
        if RANK == 1 and step == 8:
            decoder.seats = 0  # Somebody else's job took it.
        frame = decoder.decode(step)
        time.sleep(0.05)
        print(f"rank {RANK} step {step} frame {frame}", flush=True)


if __name__ == "__main__":
    main()
