import argparse
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    for epoch in range(parser.parse_args().epochs):
        time.sleep(0.1)
        print(f"epoch {epoch} loss {1 / (epoch + 1):.3f}", flush=True)


if __name__ == "__main__":
    main()
