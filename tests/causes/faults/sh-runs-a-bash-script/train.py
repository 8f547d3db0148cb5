import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()
for epoch in range(args.epochs):
    print(f"epoch {epoch} lr {args.lr}", flush=True)
