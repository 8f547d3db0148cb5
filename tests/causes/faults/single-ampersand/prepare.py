import json
import os
import time

print("tokenizing", flush=True)
time.sleep(3)
os.makedirs("data", exist_ok=True)
with open("data/train.jsonl", "w") as file:
    for number in range(100):
        file.write(json.dumps({"tokens": [number, number + 1]}) + "\n")
print("tokenized", flush=True)
