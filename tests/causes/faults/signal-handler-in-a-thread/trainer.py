import signal
import time


class Trainer:
    def __init__(self, steps):
        self.steps, self.step, self.is_stopping = steps, 0, False

    def _stop(self, number, frame):
        self.is_stopping = True

    def fit(self):
        time.sleep(0.5)  # It builds the model.
        signal.signal(signal.SIGTERM, self._stop)  # here
        while self.step < self.steps and not self.is_stopping:
            self.step += 1
            time.sleep(0.1)
