"""What the server and the worker both need; standard library only, Python 3.9 and later."""
