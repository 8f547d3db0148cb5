import time
from concurrent.futures import ThreadPoolExecutor

POOL = ThreadPoolExecutor(4)


def chunk(words):
    time.sleep(0.05)
    return len(words)


def shard(text):
    time.sleep(0.1)
    words = text.split()
    futures = [POOL.submit(chunk, words[start : start + 8]) for start in range(0, len(words), 8)]
    return sum(future.result() for future in futures)  # here


def count(texts):
    return sum(POOL.map(shard, texts))  # here
