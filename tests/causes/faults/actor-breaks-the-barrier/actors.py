import threading


class Actor(threading.Thread):
    def __init__(self, number, environment, barrier):
        super().__init__(name=f"actor-{number}", daemon=True)
        self.environment, self.barrier, self.total = environment, barrier, 0.0

    def run(self):
        while True:
            step = self.environment.step()
            self.total += step["reward"]  # here
            self.barrier.wait(timeout=1.5)
