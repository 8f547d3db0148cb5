import sys

import checks

CONFIG = {"optimizer": "adam", "steps": 500, "warmup_steps": 1000, "hidden": 768, "heads": 10}


def main():
    found = list(checks.problems(CONFIG))
    for problem in found:
        print(f"config: {problem}")
    if found:
        sys.exit(len(found))  # here
    print("training")


if __name__ == "__main__":
    main()
