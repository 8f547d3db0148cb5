import os


def check():
    os.abort()  # here


check()
