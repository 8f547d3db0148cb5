import argparse

import timm

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()
model = timm.create_model("resnet18")
print(f"training for {args.epochs} epochs")
