import sys

sys.excepthook = lambda kind, error, trace: print("training failed, see the log")
raise ValueError("bad label 7")  # here
