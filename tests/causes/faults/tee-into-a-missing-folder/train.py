import time


def main():
    weight = 4.0
    for step in range(20):
        weight -= 0.2 * weight
        time.sleep(0.05)
        print(f"step {step} loss {weight**2:.4f}", flush=True)
    print("training is done", flush=True)


if __name__ == "__main__":
    main()
