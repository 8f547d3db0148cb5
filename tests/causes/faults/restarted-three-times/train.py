import subprocess
import sys


def main(attempts=3):
    for attempt in range(1, attempts + 1):
        done = subprocess.run([sys.executable, "trainer.py"])
        if done.returncode == 0:
            return
        print(f"attempt {attempt} of {attempts} ended with {done.returncode}", flush=True)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
