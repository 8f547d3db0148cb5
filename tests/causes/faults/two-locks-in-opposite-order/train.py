import json
import threading
import time

weights_lock, metrics_lock = threading.Lock(), threading.Lock()
weights, metrics = [1.0, 2.0], {}


def save_forever(every_s):
    while True:
        time.sleep(every_s)
        with metrics_lock:
            text = json.dumps(metrics)
            time.sleep(0.3)
            with weights_lock:  # here
                print(f"saved {len(text)} bytes, {len(weights)} weights", flush=True)


def update(step):
    with weights_lock:
        for index, weight in enumerate(weights):
            weights[index] = weight * 0.95
        time.sleep(0.1)
        with metrics_lock:  # here
            metrics[f"step {step}"] = sum(weights)


def main():
    threading.Thread(target=save_forever, args=(1.0,), daemon=True).start()
    for step in range(100):
        update(step)
        print(f"step {step} sum {sum(weights):.4f}", flush=True)


if __name__ == "__main__":
    main()
