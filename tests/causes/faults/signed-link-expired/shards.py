import urllib.request


def rows(links):
    for link in links:
        with urllib.request.urlopen(link, timeout=5) as answer:  # here
            yield [int(word) for word in answer.read().split()]
