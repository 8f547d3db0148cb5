import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor


def send(name):
    time.sleep(0.1)
    print(f"sent {name}", flush=True)


class Uploader(threading.Thread):
    def __init__(self):
        super().__init__(name="uploader")
        self.names = queue.Queue()
        self.pool = ThreadPoolExecutor(2)
        self.start()

    def run(self):
        while (name := self.names.get()) is not None:
            time.sleep(0.3)  # Compresses the file.
            self.pool.submit(send, name)  # here
