import subprocess
import sys


class Tokenizer:
    """Stands for a tokenizer in another language, which runs as a process of its own."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "tokenizer_process.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def count(self, text):
        self.process.stdin.write(text + "\n")
        return int(self.process.stdout.readline())  # here
