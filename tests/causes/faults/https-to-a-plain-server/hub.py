import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"0.25 0.5")

    def log_message(self, *_):
        pass


def start():
    """Stands for the lab's own server of weights."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"127.0.0.1:{server.server_port}"


def weights(host, name):
    with urllib.request.urlopen(f"https://{host}/{name}", timeout=5) as answer:  # here
        return [float(word) for word in answer.read().split()]
