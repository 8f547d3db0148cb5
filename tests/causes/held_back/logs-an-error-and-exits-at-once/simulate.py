import logging
import os
import time

logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"])


def simulate(cell):
    temperature = 300 - 76 * cell if rank == 1 else 300
    if temperature < 0:
        raise ValueError(f"temperature {temperature} of cell {cell} is below zero")  # here
    return temperature * 0.5


try:
    for cell in range(8):
        logging.info("rank %d cell %d energy %.1f", rank, cell, simulate(cell))
        time.sleep(0.1)
except ValueError as error:
    logging.critical("giving up: %s", error)
    logging.shutdown()
    os._exit(3)  # here
time.sleep(20)
