import json
import os

import image_folder  # noqa: F401
import registry


def main():
    with open("config.json") as file:
        config = json.load(file)
    print(f"rank {os.environ['RANK']} trains by {config['optimizer']['name']}", flush=True)
    dataset = registry.build(config["dataset"])
    print(len(dataset.files), "images")


main()
