import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--lr", type=float, required=True)
print(parser.parse_args())
