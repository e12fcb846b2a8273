"""nghttp: HTTP/2 frame by frame, in clear text and over TLS."""

import hashlib
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from harness import DEADLINE, case, case_for, holds, key, place, run_cases, same

BASES = [place("http"), place("https")]


def nghttp(*args):
    """What it writes. It says its own mind about certificates in there; the authority of the development certificates is known to it."""
    command = ["nghttp", "--timeout", f"{DEADLINE}s", *args]
    done = subprocess.run(command, capture_output=True, timeout=2 * DEADLINE, env=os.environ | {"SSL_CERT_FILE": place("ca")})
    holds(done.returncode == 0 and b"WARNING" not in done.stderr + done.stdout, f"{done.returncode}: {done.stderr} {done.stdout[-500:]}")
    return done.stdout


def verbose(*args):
    return nghttp("-v", "--null-out", *args).decode("latin-1")


def received(text, field):
    """Values of a field in what came from the gateway, in their order."""
    return re.findall(rf"recv \(stream_id=\d+\) {re.escape(field)}: (.*)", text)


def scheme(base):
    return base.partition(":")[0]


@case_for(BASES, scheme)
def is_understood(base):
    seen = json.loads(nghttp(f"{base}/echo?a=b", "-H", "x-custom: yes"))
    same((seen["path"], seen["headers"]["x-custom"], seen["headers"]["via"]), ("/echo?a=b", "yes", "2 tollgate"))


@case
def does_not_know_the_authority_by_itself():
    command = ["nghttp", "--null-out", f"{BASES[1]}/echo"]
    environment = os.environ | {"SSL_CERT_FILE": "/dev/null", "SSL_CERT_DIR": "/dev/null"}
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE, env=environment)
    holds(b"WARNING" in done.stdout + done.stderr, "it believes anything, so the other cases verify nothing")


@case_for(BASES, scheme)
def has_a_hundred_streams_at_once(base):
    text = verbose("-m", "100", f"{base}/barrier?key={key()}&together=100")
    same(received(text, ":status"), ["200"] * 100)


@case_for(BASES, scheme)
def sends_8_mib(base):
    with tempfile.TemporaryDirectory() as folder:
        body = hashlib.shake_128(b"nghttp").digest(8 << 20)
        path = Path(folder) / "body"
        path.write_bytes(body)
        for more in [], ["--no-content-length"], ["--padding", "200"]:
            seen = json.loads(nghttp("-d", str(path), *more, f"{base}/echo"))
            same((seen["method"], seen["sha256"]), ("POST", hashlib.sha256(body).hexdigest()), " ".join(more))
            same("content-length" in seen["headers"], "--no-content-length" not in more)


@case_for(BASES, scheme)
def takes_4_mib_through_small_windows(base):
    for bits in "10", "16", "24":
        body = nghttp("-w", bits, "-W", "16", f"{base}/download?bytes={4 << 20}")
        head = verbose(f"{base}/download?bytes={4 << 20}", "-H", ":method: HEAD")
        same([hashlib.sha256(body).hexdigest()], received(head, "x-sha256"), f"2^{bits}")


@case_for(BASES, scheme)
def expects_100_continue(base):
    with tempfile.NamedTemporaryFile() as body:
        body.write(b"x" * 100_000)
        body.flush()
        text = verbose("--expect-continue", "-d", body.name, f"{base}/echo")
        # The gateway has no 100 for HTTP/2; nghttp goes on after a second.
        same(received(text, ":status")[-1:], ["200"])
        text = verbose("--expect-continue", "-d", body.name, f"{base}/small/echo")
        same(received(text, ":status"), ["413"])


@case_for(BASES, scheme)
def asks_for_a_head_alone(base):
    text = verbose("-H", ":method: HEAD", f"{base}/download?bytes=12345")
    same((received(text, ":status"), received(text, "content-length")), (["200"], ["12345"]))
    holds("recv DATA" not in text, "a body")


@case_for(BASES, scheme)
def sends_trailers_and_takes_them(base):
    with tempfile.NamedTemporaryFile() as body:
        body.write(b"body")
        body.flush()
        seen = json.loads(nghttp("-d", body.name, "--no-content-length", "--trailer", "x-digest: 81cc", f"{base}/echo"))
        same((seen["bytes"], seen["trailers"]), (4, {"x-digest": "81cc"}))
    text = verbose(f"{base}/trailers")
    same(received(text, "x-digest"), [hashlib.sha256(b"body").hexdigest()])


@case_for(BASES, scheme)
def takes_gzip_as_the_upstream_made_it(base):
    text = verbose("-H", "accept-encoding: gzip", f"{base}/gzip")
    same((received(text, ":status"), received(text, "content-encoding")), (["200"], ["gzip"]))
    # It unpacks what it writes.
    unpacked, plain = nghttp("-H", "accept-encoding: gzip", f"{base}/gzip"), nghttp("-H", "accept-encoding: identity", f"{base}/gzip")
    holds(len(plain) > 10_000 and unpacked == plain, f"{len(unpacked)} bytes instead of {len(plain)}")


@case_for(BASES, scheme)
def is_refused_stream_by_stream(base):
    text = verbose("-m", "10", "-H", f"x-case: {key()}", f"{base}/few/echo")
    same(sorted(received(text, ":status")), ["200"] * 2 + ["429"] * 8)
    same(len(received(text, "retry-after")), 8, "fields Retry-After")
    same(len(received(text, "ratelimit")), 10, "fields RateLimit")


@case_for(BASES, scheme)
def is_told_that_a_body_is_too_large(base):
    with tempfile.NamedTemporaryFile() as body:
        body.write(b"x" * 200_000)
        body.flush()
        for more in [], ["--no-content-length"]:
            same(received(verbose("-d", body.name, *more, f"{base}/small/echo"), ":status"), ["413"], " ".join(more))


@case_for(BASES, scheme)
def sends_a_head_in_several_frames(base):
    """CONTINUATION, behind a HEADERS frame that is full."""
    large = "x" * 20_000
    seen = json.loads(nghttp("-H", f"x-large: {large}", f"{base}/echo"))
    same(seen["headers"]["x-large"], large)


@case
def changes_the_size_of_its_header_table():
    for size in "0", "256", "64K":
        text = verbose("-c", size, "-m", "20", f"{BASES[0]}/echo")
        same(received(text, ":status"), ["200"] * 20, f"with {size}")


@case
def is_answered_when_it_asks_for_an_upgrade():
    """The gateway has no `Upgrade: h2c`; nghttp says so and ends. What matters is that it is no tunnel and no hang."""
    done = subprocess.run(["nghttp", "-v", "-u", f"{BASES[0]}/echo"], capture_output=True, timeout=DEADLINE)
    holds(b"101" not in done.stdout and b"HTTP/1.1 200" in done.stdout, f"{done.stdout} {done.stderr}")


run_cases()
