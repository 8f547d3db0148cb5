import logging
import sys


class StreamToLogger:
    """Looks like a file, and logs what is written to it, line by line."""

    def __init__(self, logger, level):
        self.logger, self.level = logger, level

    def write(self, text):
        for line in text.rstrip().splitlines():
            self.logger.log(self.level, line.rstrip())

    def flush(self):
        pass


def set_up(rank):
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.__stdout__,
        format=f"%(asctime)s | rank {rank} | %(levelname)-7s | %(name)s | %(message)s",
    )
    sys.stdout = StreamToLogger(logging.getLogger("stdout"), logging.INFO)
    sys.stderr = StreamToLogger(logging.getLogger("stderr"), logging.ERROR)
