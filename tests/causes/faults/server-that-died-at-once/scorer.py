import socketserver
import sys

import scoring_kernels


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(f"{scoring_kernels.score(line)}\n".encode())


socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
