import argparse

from metrics import error_rate


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    for epoch in range(args.epochs):
        pairs = [(number % 3, number % (2 + epoch)) for number in range(60)]
        print(f"epoch {epoch} lr {args.lr} error rate {error_rate(pairs):.3f}", flush=True)


if __name__ == "__main__":
    main()
