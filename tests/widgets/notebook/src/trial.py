"""A trial of a sweep, as people wrote it for HyperDrive: its accuracy rises to its rate."""

import argparse

from azureml.core import Run

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--kind")
arguments = parser.parse_args()
run = Run.get_context()
for epoch in range(3):
    run.log("accuracy", arguments.rate * (epoch + 1) / 3)
print("kind", arguments.kind)
