import time

from tracker import Run


def main():
    run = Run("baseline", folder="results")
    weight = 4.0
    for step in range(20):
        weight -= 0.2 * weight
        run.log(step, loss=weight**2)
        print(f"step {step} loss {weight**2:.4f}", flush=True)
        time.sleep(0.05)
    print("done", flush=True)


if __name__ == "__main__":
    main()
