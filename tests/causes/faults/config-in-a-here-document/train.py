import argparse

import config


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    settings = config.load(parser.parse_args().config)
    weight = 1.0
    for step in range(settings["steps"]):
        weight -= settings["optimizer"]["lr"] * weight
        print(f"step {step} loss {weight**2:.4f}", flush=True)


if __name__ == "__main__":
    main()
