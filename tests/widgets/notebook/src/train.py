"""A training script as people wrote it for SDK v1; it learns on when somebody has looked."""

import argparse
import math
import time
from pathlib import Path

from azureml.core import Run

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--seen", type=Path, help="the file that says that somebody has looked")
arguments = parser.parse_args()
run = Run.get_context()
run.log("epochs", arguments.epochs)
for epoch in range(arguments.epochs):
    loss = math.exp(-epoch / 5)
    run.log("loss", loss)
    run.log("accuracy", 1 - loss / 2)
    print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
    while epoch == arguments.epochs // 2 and not arguments.seen.exists():
        time.sleep(0.2)
print("learned")
