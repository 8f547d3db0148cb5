import os

from tokens import Tokenizer

RANK = int(os.environ["RANK"])


def main():
    tokenizer = Tokenizer()
    print(f"rank {RANK} starts to train", flush=True)
    for step in range(20):
        count = tokenizer.count("the cat sat on the mat")
        print(f"rank {RANK} step {step}: {count} tokens", flush=True)


if __name__ == "__main__":
    main()
