import re

WORDS = re.compile(r"^(\w+\s?)*$")


def is_text(line):
    return WORDS.match(line) is not None  # here
