import json
from pathlib import Path


def load(folder):
    lines = Path(folder, "train.jsonl").read_text().splitlines()  # here
    return [json.loads(line)["tokens"] for line in lines]


rows = load("data")
print(f"{len(rows)} rows")
