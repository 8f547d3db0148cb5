import argparse


def main():
    parser = argparse.ArgumentParser(description="Trains a small model.")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    for step in range(arguments.steps):
        print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)


if __name__ == "__main__":
    main()
