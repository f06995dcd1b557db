"""Forward a local port to a server that runs in the target.

python examples/ports.py [TARGET]
"""

from __future__ import annotations

import sys
import urllib.request

import hermes_exec.sync as hx

SERVER = """
import http.server, socketserver

class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from the target\\n")

    def log_message(self, *_):
        pass

with socketserver.TCPServer(("127.0.0.1", 0), Hello) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
"""


def main(target: str = "local") -> None:
    """Run the example on ``target``."""
    with hx.open(target) as terminal, terminal.stream(["python3", "-c", SERVER]) as events:
        port = int(next(events).data)
        # 0 means any free port on this side. The connection comes out of the target.
        with terminal.forward(0, f"127.0.0.1:{port}") as forward:
            address = f"http://{forward.address}/"
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(address, timeout=10) as reply:
                print(reply.read().decode(), end="")
    # Leaving the block of the stream ended the server.


if __name__ == "__main__":
    main(*sys.argv[1:])
