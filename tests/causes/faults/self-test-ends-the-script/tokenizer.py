import re


def split(text):
    return re.findall(r"\w+|[^\w\s]", text.lower())
