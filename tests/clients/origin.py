"""The HTTP/1.1 upstream. What a case needs to happen in an order is arranged by keys that requests share, never by time."""

import gzip
import hashlib
import json
import random
import sys
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from harness import DEADLINE, announce

# Random, so that nothing on the way could make it smaller.
NOISE = random.Random(5).randbytes(1 << 20)
TEXT = b"".join(b"line %d of a text that compresses well\n" % number for number in range(2000))

# By key: something has happened, and how many have come.
happened = defaultdict(threading.Event)
arrivals = defaultdict(lambda: [0, threading.Condition()])


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer_any(self):
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        name = url.path.rstrip("/").rpartition("/")[2] or "root"
        answer = getattr(self, f"answer_{name}", self.answer_echo)
        try:
            answer(query)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = answer_any

    def answer_echo(self, query):
        """What has arrived."""
        digest, size, trailers = self.read_body()
        seen = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "sha256": digest,
            "bytes": size,
            "trailers": trailers,
        }
        self.send(json.dumps(seen).encode(), "application/json")

    def answer_download(self, query):
        size = int(query["bytes"])
        pieces = [NOISE[: min(len(NOISE), size - at)] for at in range(0, size, len(NOISE))]
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        self.head("application/octet-stream", {"x-sha256": digest.hexdigest()} | self.length(None if "chunked" in query else size))
        for piece in pieces if self.command != "HEAD" else []:
            self.chunk(piece) if "chunked" in query else self.wfile.write(piece)
        if "chunked" in query and self.command != "HEAD":
            self.last_chunk()

    def answer_gzip(self, query):
        """Compressed for whoever takes that."""
        if "gzip" in self.headers.get("accept-encoding", ""):
            packed = gzip.compress(TEXT, mtime=0)
            digest = hashlib.sha256(packed).hexdigest()
            self.send(packed, "text/plain", {"content-encoding": "gzip", "vary": "accept-encoding", "x-packed": digest})
        else:
            self.send(TEXT, "text/plain", {"vary": "accept-encoding"})

    def answer_events(self, query):
        """The second event comes when somebody has said that he saw the first: nothing may hold events back."""
        self.head("text/event-stream", {"cache-control": "no-cache"} | self.length(None))
        self.chunk(b"id: 1\ndata: one\n\n")
        if happened[query["key"]].wait(DEADLINE):
            self.chunk(b"id: 2\nevent: last\ndata: two\n\n")
        self.last_chunk()

    def answer_happen(self, query):
        happened[query["key"]].set()
        self.send(b"", "text/plain")

    def answer_barrier(self, query):
        """Nobody gets an answer before all have asked."""
        arrived = arrivals[query["key"]]
        with arrived[1]:
            arrived[0] += 1
            arrived[1].notify_all()
            together = arrived[1].wait_for(lambda: arrived[0] >= int(query["together"]), DEADLINE)
        self.send(str(arrived[0]).encode(), "text/plain", status=200 if together else 504)

    def answer_trailers(self, query):
        self.head("text/plain", {"trailer": "x-digest"} | self.length(None))
        if self.command != "HEAD":
            self.chunk(b"body")
            self.last_chunk({"x-digest": hashlib.sha256(b"body").hexdigest()})

    def answer_endless(self, query):
        """Goes on until the client has left."""
        self.head("application/octet-stream", self.length(None))
        try:
            while True:
                self.chunk(NOISE[:65536])
        except (BrokenPipeError, ConnectionResetError):
            happened[query["key"]].set()
            raise

    def answer_happened(self, query):
        """Answers when it has."""
        self.send(b"", "text/plain", status=200 if happened[query["key"]].wait(DEADLINE) else 504)

    def answer_status(self, query):
        self.read_body()
        self.send(b"as you like", "text/plain", status=int(query["code"]))

    def read_body(self):
        """Its digest, its size, and the trailers behind it."""
        digest, size, trailers = hashlib.sha256(), 0, {}
        for piece in self.pieces(trailers):
            digest.update(piece)
            size += len(piece)
        return digest.hexdigest(), size, trailers

    def pieces(self, trailers):
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            left = int(self.headers.get("content-length", 0))
            while left:
                piece = self.rfile.read(min(left, 65536))
                if not piece:
                    raise ConnectionResetError("half a body")
                left -= len(piece)
                yield piece
            return
        while size := self.chunk_size():
            yield self.rfile.read(size)
            self.rfile.readline()
        while line := self.rfile.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            trailers[name.lower()] = value.strip()

    def chunk_size(self):
        line = self.rfile.readline().split(b";")[0].strip()
        if not line:
            raise ConnectionResetError("half a body")
        return int(line, 16)

    def send(self, body, kind, headers={}, status=200):
        self.head(kind, headers | self.length(len(body)), status)
        if self.command != "HEAD":
            self.wfile.write(body)

    def length(self, size):
        return {"transfer-encoding": "chunked"} if size is None else {"content-length": str(size)}

    def head(self, kind, headers, status=200):
        self.send_response(status)
        for name, value in ({"content-type": kind} | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def chunk(self, piece):
        self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def last_chunk(self, trailers={}):
        lines = "".join(f"{name}: {value}\r\n" for name, value in trailers.items())
        self.wfile.write(f"0\r\n{lines}\r\n".encode())

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, *who):
        """Connections that the gateway breaks off are its good right; anything else is worth a traceback."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(*who)


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Origin)
    announce(server.server_port)
    server.serve_forever()
