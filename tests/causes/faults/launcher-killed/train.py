import os
import signal
import time

if os.environ["RANK"] == "1":
    os.kill(os.getppid(), signal.SIGKILL)
time.sleep(60)
