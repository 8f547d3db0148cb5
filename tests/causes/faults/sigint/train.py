import os
import signal
import time

# Stands for somebody else who does it.
os.kill(os.getpid(), signal.SIGINT)  # here
time.sleep(30)  # here
