import time


def wait_for_batch():
    time.sleep(120)  # here


print("epoch 0")
wait_for_batch()
