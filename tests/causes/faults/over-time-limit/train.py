import time

time.sleep(120)  # here
