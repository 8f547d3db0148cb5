import os
import time

if os.environ["RANK"] == "1":
    raise ValueError("bad label 7")  # here
time.sleep(60)
