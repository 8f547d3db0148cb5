import threading
import time


def load():
    time.sleep(1)


threading.Thread(target=load).start()
raise ValueError("bad label 7")  # here
