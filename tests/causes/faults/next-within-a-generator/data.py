import json


def documents(source, count):
    for number in range(count):
        yield f"{source} {number}"


def interleaved(rank):
    """A document of each source in turn, as the mixture of the rank's shard says."""
    with open("mixture.json") as file:
        counts = json.load(file)[rank]
    readers = [documents(source, count) for source, count in counts.items()]
    while True:
        for reader in readers:
            yield next(reader)  # here
