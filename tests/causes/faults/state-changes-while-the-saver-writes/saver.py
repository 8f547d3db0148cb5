import queue
import threading
import time


class Saver(threading.Thread):
    def __init__(self, state):
        super().__init__(name="saver", daemon=True)
        self.state, self.steps = state, queue.Queue()

    def run(self):
        while (step := self.steps.get()) is not None:
            with open(f"step-{step}.txt", "w") as file:
                for name, value in self.state.items():  # here
                    file.write(f"{name} {value}\n")
                    time.sleep(0.01)
