import threading
import time

from trainer import Trainer


def main():
    trainer = Trainer(steps=20)
    thread = threading.Thread(target=trainer.fit, name="trainer")
    thread.start()
    while thread.is_alive():
        print(f"progress {trainer.step}/{trainer.steps}", flush=True)
        time.sleep(0.2)
    print("trainer has finished", flush=True)


if __name__ == "__main__":
    main()
