import argparse
import time


def parse():
    parser = argparse.ArgumentParser(description="Trains a recurrent tagger.")
    parser.add_argument("-l", "--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128, help="size of the hidden state")
    parser.add_argument("-s", "--steps", type=int, default=40)
    return parser.parse_args()


def main():
    args = parse()
    print(f"{args.layers} layers of {args.hidden}", flush=True)
    for step in range(args.steps):
        time.sleep(0.05)
        print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)


if __name__ == "__main__":
    main()
