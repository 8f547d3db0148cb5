import os

print("no more data")
os._exit(5)  # here
