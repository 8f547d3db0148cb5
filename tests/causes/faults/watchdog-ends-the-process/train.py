import os
import threading
import time

RANK = int(os.environ["RANK"])


class Watchdog(threading.Thread):
    def __init__(self, limit_s):
        super().__init__(name="watchdog", daemon=True)
        self.limit_s, self.last = limit_s, time.monotonic()

    def beat(self):
        self.last = time.monotonic()

    def run(self):
        while time.monotonic() - self.last < self.limit_s:
            time.sleep(0.1)
        print(f"watchdog: no step of rank {RANK} for {self.limit_s} s, giving up", flush=True)
        os._exit(17)  # here


def read(step):
    if RANK == 2 and step == 9:
        time.sleep(120)  # here
    time.sleep(0.1)
    return [step] * 4


def main():
    watchdog = Watchdog(limit_s=2.0)
    watchdog.start()
    for step in range(40):
        batch = read(step)  # here
        watchdog.beat()
        print(f"step {step} sum {sum(batch)}", flush=True)


if __name__ == "__main__":
    main()
