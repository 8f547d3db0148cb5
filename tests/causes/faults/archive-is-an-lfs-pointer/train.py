import argparse
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, required=True)
rows = [line for file in parser.parse_args().data.glob("*.txt") for line in open(file)]
for epoch in range(3):
    print(f"epoch {epoch}: {len(rows)} rows", flush=True)
