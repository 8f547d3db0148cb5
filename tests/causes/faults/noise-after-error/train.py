import threading


def report():
    for step in range(2000):
        print("step", step, "x" * 40)


threading.Thread(target=report).start()
raise ValueError("bad label 7")  # here
