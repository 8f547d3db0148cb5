import sys
import threading


def load():
    raise ValueError("bad shard 3")  # here


loader = threading.Thread(target=load)
loader.start()
loader.join()
sys.exit(1)
