import os

from .model import build  # here


def main():
    model = build(classes=10)
    print(f"rank {os.environ['RANK']} trains {len(model)} weights")


if __name__ == "__main__":
    main()
