import argparse
import json

DEFAULTS = {"lr": 0.01, "momentum": 0.9}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--overrides", type=json.loads, default={}, help="options as JSON")
    return parser.parse_args()


def main():
    arguments = parse()
    options = DEFAULTS | arguments.overrides
    for epoch in range(arguments.epochs):
        print(f"epoch {epoch} lr {options['lr']}", flush=True)


if __name__ == "__main__":
    main()
