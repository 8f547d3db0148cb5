import sqlite3
import time


class Results:
    def __init__(self, path):
        self.connection = sqlite3.connect(path, timeout=300)
        self.connection.execute("CREATE TABLE IF NOT EXISTS results (rank INTEGER, score REAL)")

    def write(self, rank, score):
        self.connection.execute("INSERT INTO results VALUES (?, ?)", (rank, score))  # here

    def wait_for(self, count):
        query = "SELECT count(*), avg(score) FROM results"
        while (found := self.connection.execute(query).fetchone())[0] < count:  # here
            time.sleep(0.2)  # here
        return found[1]
