import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        expires = float(self.path.rpartition("expires=")[2])
        if time.time() > expires:
            self.send_error(403, "Request has expired")
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"1 2 3 4")

    def log_message(self, *_):
        pass


def links(count, valid_s=1.5):
    """Stands for an object store: links that are valid for some time."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    expires = time.time() + valid_s
    return [f"{address}/shard-{number}?expires={expires:.3f}" for number in range(count)]
