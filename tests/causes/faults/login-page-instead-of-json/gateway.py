import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

LOGIN = (
    b"<!DOCTYPE html><html><body><form action='/login'>Log in to the network</form></body></html>"
)
CATALOGUE = b'{"shards": ["a", "b", "c"]}'


def start(is_logged_in):
    """Stands for the network of a node and the server behind it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(CATALOGUE if is_logged_in else LOGIN)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
