import argparse
from pathlib import Path


def load(path):
    values = {}
    exec(Path(path).read_text(), {}, values)  # here
    return argparse.Namespace(**values)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config_base.py")
    config = load(parser.parse_args().config)
    print(f"{config.parameters / 1e6:.1f} M parameters")
    for step in range(config.warmup):
        print(f"step {step} lr {config.lr * step / config.warmup:.2e}")


if __name__ == "__main__":
    main()
