import argparse


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--run-name", default="test")
    return parser.parse_args()


args = parse()
for epoch in range(args.epochs):
    print(f"{args.run_name}: epoch {epoch}")
