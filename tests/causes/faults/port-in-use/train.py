import socket

metrics = socket.create_server(("127.0.0.1", 0))
profiler = socket.create_server(metrics.getsockname())  # here
