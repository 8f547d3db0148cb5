import threading


class Cache:
    def __init__(self, limit):
        self.rows, self.limit, self.lock = {}, limit, threading.Lock()

    def put(self, key, row):
        with self.lock:
            self.rows[key] = row
            if len(self.rows) > self.limit:
                self.evict()  # here

    def evict(self):
        with self.lock:  # here
            self.rows.pop(next(iter(self.rows)))
