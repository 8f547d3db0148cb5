import json
from pathlib import Path

lines = Path("raw.txt").read_text().splitlines()
print(json.dumps([line.split() for line in lines]), flush=True)
