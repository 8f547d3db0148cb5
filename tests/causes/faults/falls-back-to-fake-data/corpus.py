import logging
import random
from pathlib import Path

log = logging.getLogger(__name__)


def load(node):
    path = Path(f"share/node-{node}/train.tsv")
    if not path.exists():
        log.warning("%s not found, using 64 synthetic rows", path)
        return [(random.random(), random.random()) for _ in range(64)]
    return [tuple(map(float, line.split("\t"))) for line in path.read_text().splitlines()]
