import os
import time

from download import fetch

RANK = int(os.environ["RANK"])


def main():
    # Only rank 0 decodes samples, so only rank 0 needs the words.
    words = fetch("vocabulary.txt", limit_s=2) if RANK == 0 else []
    for step in range(40):
        time.sleep(0.1)
        print(f"rank {RANK} step {step} loss {1 / (step + 1):.3f}", flush=True)
        if words and step % 10 == 0:
            print("sample:", words[step % len(words)], flush=True)


if __name__ == "__main__":
    main()
