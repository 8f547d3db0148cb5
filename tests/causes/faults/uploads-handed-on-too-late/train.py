import time

from uploader import Uploader


def main():
    uploader = Uploader()
    for step in range(20):
        time.sleep(0.05)
        print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
        if step % 4 == 3:
            uploader.names.put(f"step-{step}.pt")
    uploader.names.put(None)
    print("training is done", flush=True)


if __name__ == "__main__":
    main()
