from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.endswith("/2"):
            self.send_error(503, "Slow Down")
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"1,2,3\n" * 100)

    def log_message(self, *_):
        pass


def start():
    """A stand-in for the bucket; the answer is its address."""
    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
