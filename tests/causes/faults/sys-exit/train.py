import sys


def main():
    sys.exit(3)  # here


main()
