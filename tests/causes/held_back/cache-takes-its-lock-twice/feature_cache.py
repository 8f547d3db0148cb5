import threading

import torch


class FeatureCache:
    def __init__(self, limit):
        self.limit, self.rows = limit, {}
        self.lock = threading.Lock()

    def get(self, key):
        with self.lock:
            if key not in self.rows:
                if len(self.rows) >= self.limit:
                    self.evict()  # here
                self.rows[key] = torch.full((4,), float(key))
            return self.rows[key]

    def evict(self):
        with self.lock:  # here
            for key in list(self.rows)[: self.limit // 2]:
                del self.rows[key]
