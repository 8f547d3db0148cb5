import faulthandler
import os
import time

RANK = int(os.environ["RANK"])
LIMIT = 512


def lengths(rank):
    for step in range(40):
        yield 3000 if rank == 2 and step == 12 else 100 + 7 * step


def pack(length, overlap):
    windows = 1
    while length > LIMIT:  # here
        length -= LIMIT - overlap  # here
        windows += 1  # here
    return windows


def main():
    # The stride is the whole window since the overlap was doubled.
    overlap = 2 * 256
    for step, length in enumerate(lengths(RANK)):
        faulthandler.dump_traceback_later(2, exit=True)  # here
        windows = pack(length, overlap)  # here
        time.sleep(0.05)
        print(f"rank {RANK} step {step}: {windows} windows", flush=True)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
