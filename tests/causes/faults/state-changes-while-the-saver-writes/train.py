import time

from saver import Saver


def main():
    state = {f"layer.{number}.weight": 1.0 for number in range(20)}
    saver = Saver(state)
    saver.start()
    for step in range(40):
        for name in list(state):
            state[name] *= 0.99
        if step >= 15:  # Layers are unfrozen, and get moments, one by one.
            state[f"layer.{step - 15}.moment"] = 0.0
        if step % 10 == 0:
            saver.steps.put(step)
        time.sleep(0.05)
        print(f"step {step} loss {state['layer.0.weight']:.4f}", flush=True)
    saver.steps.put(None)
    saver.join()
    print("done", flush=True)


if __name__ == "__main__":
    main()
