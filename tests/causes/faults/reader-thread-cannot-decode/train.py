import os
import time

from reader import Reader


def export(rank):
    """Stands for a crawl; some of its pages are in Latin-1."""
    path = f"names-{rank}.txt"
    with open(path, "wb") as file:
        for number, name in enumerate(["Zürich", "Genève", "Bern"] * 2000):
            encoding = "latin-1" if rank == 1 and number > 4000 else "utf-8"
            file.write(name.encode(encoding) + b"\n")
    return path


def main():
    rank = int(os.environ["RANK"])
    letters = 0
    for step, line in enumerate(Reader(export(rank))):
        letters += len(line)
        if step % 500 == 0:
            time.sleep(0.1)
            print(f"step {step}: {letters} letters", flush=True)
    print(f"rank {rank} is done", flush=True)


if __name__ == "__main__":
    main()
