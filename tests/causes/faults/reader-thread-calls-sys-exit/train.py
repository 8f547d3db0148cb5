import json
import os
import time

from reader import Reader

RANK = int(os.environ["RANK"])


def records():
    for number in range(40):
        text = json.dumps({"text": f"row {number}", "label": number % 2})
        yield text[5:] if RANK == 1 and number == 22 else text


def main():
    for step, row in enumerate(Reader(records())):
        time.sleep(0.05)
        print(f"rank {RANK} step {step} label {json.loads(row)['label']}", flush=True)


if __name__ == "__main__":
    main()
