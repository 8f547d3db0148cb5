import threading
import time

LOCK = threading.Lock()
ROWS = {}


def preload(numbers):
    with LOCK:
        time.sleep(1.5)  # Reads them from the share.
        ROWS.update({number: [number] * 4 for number in numbers})


def get(number):
    with LOCK:
        return ROWS.setdefault(number, [number] * 4)
