import time
import unittest

from tokenizer import split


class TokenizerTest(unittest.TestCase):
    def test_splits_punctuation(self):
        self.assertEqual(split("Stop, now!"), ["stop", ",", "now", "!"])

    def test_keeps_apostrophes(self):
        self.assertEqual(split("don't go"), ["don't", "go"])  # here


def train():
    for step in range(20):
        time.sleep(0.05)
        print(f"step {step} tokens {len(split('a b c.'))}", flush=True)


if __name__ == "__main__":
    unittest.main(argv=["self-test"])  # here
    train()
