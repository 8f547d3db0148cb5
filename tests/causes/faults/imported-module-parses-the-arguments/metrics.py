import argparse

parser = argparse.ArgumentParser(description="Prints the error rate of a file of predictions.")
parser.add_argument("--predictions", default="predictions.txt")
args = parser.parse_args()  # here


def error_rate(pairs):
    return sum(guess != truth for guess, truth in pairs) / max(1, len(pairs))


if __name__ == "__main__":
    print(error_rate([line.split() for line in open(args.predictions)]))
