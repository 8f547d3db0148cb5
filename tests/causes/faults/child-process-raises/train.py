import multiprocessing
import sys


def load():
    raise ValueError("bad shard 3")  # here


if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=load)
    child.start()
    child.join()
    sys.exit(child.exitcode)
