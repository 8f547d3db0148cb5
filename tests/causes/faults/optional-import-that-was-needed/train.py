import os
import time

try:
    from fast_tokenizer import Tokenizer  # here
except ImportError:
    Tokenizer = None

RANK = int(os.environ["RANK"])
TEXTS = ["the cat sat on the mat", "a dog ran off"]


def encode(text):
    if text.isascii():
        return [len(word) for word in text.split()]
    return Tokenizer().encode(text)  # here


def main():
    texts = TEXTS * 10
    if RANK == 1:
        texts[7] = "café au lait"
    for step, text in enumerate(texts):
        tokens = encode(text)
        time.sleep(0.05)
        print(f"rank {RANK} step {step}: {len(tokens)} tokens", flush=True)


if __name__ == "__main__":
    main()
