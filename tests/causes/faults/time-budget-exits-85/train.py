import json
import signal
import sys
import time

EXIT_RESCHEDULE = 85
STATE = {"epoch": 0, "step": 0}


def save():
    with open("state.json", "w") as file:
        json.dump(STATE, file)


def out_of_time(number, frame):
    save()
    print(f"time budget used up at step {STATE['step']}, state saved", flush=True)
    sys.exit(EXIT_RESCHEDULE)  # here


def train(epochs, steps):
    for STATE["epoch"] in range(epochs):
        for _ in range(steps):
            time.sleep(0.02)
            STATE["step"] += 1
        print(f"epoch {STATE['epoch']} done", flush=True)


signal.signal(signal.SIGALRM, out_of_time)
signal.setitimer(signal.ITIMER_REAL, 2.5)
train(epochs=90, steps=40)
