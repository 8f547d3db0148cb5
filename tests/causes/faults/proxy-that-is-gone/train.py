import argparse
import tempfile

from download import fetch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", required=True)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        weights = fetch(args.weights, folder).read_bytes()
    for step in range(args.steps):
        print(f"step {step} of {len(weights)} bytes", flush=True)


if __name__ == "__main__":
    main()
