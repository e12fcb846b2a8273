"""curl: HTTP/1.1 and HTTP/2, in clear text and over TLS."""

import hashlib
import json
import re
import subprocess
import tempfile
from pathlib import Path

from harness import DEADLINE, case, case_for, holds, key, metric, place, refusals, run_cases, same

HTTP, HTTPS, CA = place("http"), place("https"), place("ca")

# How it is spoken to: name, options, base, and what the upstream reads in Via.
H1 = ("h1", ["--http1.1"], HTTP, "1.1")
H1_TLS = ("h1 over TLS", ["--http1.1", "--cacert", CA], HTTPS, "1.1")
H2C = ("h2c", ["--http2-prior-knowledge"], HTTP, "2")
H2 = ("h2", ["--http2", "--cacert", CA], HTTPS, "2")
ALL = [H1, H1_TLS, H2C, H2]

# curl 7.88.1, which is Debian's, can't use a connection a second time that it has begun with prior knowledge; with any server.
REUSED = [H1, H1_TLS, H2]


class Curl:
    """A run that has ended: its exit code, what it wrote, and the heads it saw."""

    def __init__(self, *args, stdin=None):
        self.folder = tempfile.TemporaryDirectory()
        heads = Path(self.folder.name) / "heads"
        command = ["curl", "-q", "-sS", "--noproxy", "*", "--max-time", str(DEADLINE), "-D", str(heads), *args]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=2 * DEADLINE)
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr.decode()
        text = heads.read_text() if heads.exists() else ""
        # Trailers stand behind the head of their response, without a status.
        self.heads = [head for head in re.split(r"\n\r?\n|\n(?=HTTP/)", text.replace("\r", "")) if head.strip()]

    def status(self):
        holds(self.code == 0 and self.heads, f"exit {self.code}: {self.err}")
        return int([head for head in self.heads if head.startswith("HTTP/")][-1].split()[1])

    def fields(self):
        lines = "\n".join(self.heads).splitlines()
        pairs = (line.partition(":") for line in lines if not line.startswith("HTTP/"))
        return {name.strip().lower(): value.strip() for name, _, value in pairs}

    def json(self):
        same(self.status(), 200, "status")
        return json.loads(self.out)


def curl(mode, path, *args, **more):
    """To one path in this mode."""
    return Curl(*mode[1], *args, mode[2] + path, **more)


def name(mode):
    return mode[0]


def file_of(folder, size):
    body = hashlib.shake_128(b"upload").digest(size)
    path = Path(folder) / "body"
    path.write_bytes(body)
    return path, hashlib.sha256(body).hexdigest()


@case_for(ALL, name)
def speaks_what_it_was_told_to(mode):
    answer = curl(mode, "/echo?a=1%20b", "-H", "x-custom: yes", "-w", "%{stderr}%{http_version}")
    seen = answer.json()
    same((answer.err, seen["method"], seen["path"]), (mode[3], "GET", "/echo?a=1%20b"))
    same((seen["headers"]["via"], seen["headers"]["x-custom"]), (f"{mode[3]} tollgate", "yes"))
    same(seen["headers"]["x-forwarded-proto"], "https" if mode[2] == HTTPS else "http")


@case
def offers_h2_by_alpn_and_gets_it_without_being_told():
    same(Curl("--cacert", CA, "-o", "/dev/null", "-w", "%{http_version} %{ssl_verify_result}", HTTPS + "/echo").out, b"2 0")


@case
def does_not_believe_a_certificate_of_an_authority_it_does_not_know():
    same(Curl(HTTPS + "/echo").code, 60, "exit code")


@case
def asks_for_an_upgrade_to_h2c_and_is_answered_in_http_1_1():
    seen = Curl("--http2", "-w", "%{stderr}%{http_version}", HTTP + "/echo")
    same((seen.err, "upgrade" in seen.json()["headers"]), ("1.1", False))


@case
def gets_an_answer_in_http_1_0():
    answer = Curl("-0", HTTP + "/download?bytes=100000&chunked=1")
    same(answer.status(), 200)
    same(hashlib.sha256(answer.out).hexdigest(), answer.fields()["x-sha256"])


@case_for(REUSED, name)
def keeps_its_connection(mode):
    listener = "secure" if mode[2] == HTTPS else "clear"
    before = metric("tollgate_connections_total", listener=listener)
    answer = Curl(*mode[1], "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", mode[2] + "/echo?request=[1-50]")
    same(answer.out.decode().split("\n")[:-1], ["200 1"] + ["200 0"] * 49)
    same(metric("tollgate_connections_total", listener=listener) - before, 1.0, "connections")


@case_for(ALL, name)
def sends_32_mib(mode):
    with tempfile.TemporaryDirectory() as folder:
        body, digest = file_of(folder, 32 << 20)
        seen = curl(mode, "/echo", "-T", str(body)).json()
        same((seen["method"], seen["bytes"], seen["sha256"]), ("PUT", 32 << 20, digest))
        same(seen["headers"]["content-length"], str(32 << 20))


@case_for(ALL, name)
def sends_8_mib_of_unknown_length(mode):
    body = hashlib.shake_128(b"piped").digest(8 << 20)
    seen = curl(mode, "/echo", "-T", "-", stdin=body).json()
    same((seen["bytes"], seen["sha256"]), (8 << 20, hashlib.sha256(body).hexdigest()))
    same(seen["headers"].get("transfer-encoding"), "chunked")


@case_for(ALL, name)
def takes_32_mib(mode):
    for more in "", "&chunked=1":
        answer = curl(mode, f"/download?bytes={32 << 20}{more}")
        same(answer.status(), 200)
        same((len(answer.out), hashlib.sha256(answer.out).hexdigest()), (32 << 20, answer.fields()["x-sha256"]))


@case_for([H1, H1_TLS], name)
def waits_for_100_continue(mode):
    with tempfile.TemporaryDirectory() as folder:
        body, digest = file_of(folder, 2 << 20)
        patient = ["-H", "expect: 100-continue", "--expect100-timeout", "60", "-T", str(body)]
        answer = curl(mode, "/echo", *patient)
        same(answer.json()["sha256"], digest)
        same([head.split()[1] for head in answer.heads], ["100", "200"])
        # Whoever is refused is not asked for the body.
        answer = curl(mode, "/small/echo", *patient, "-w", "%{stderr}%{size_upload}")
        same(([head.split()[1] for head in answer.heads], answer.err), (["413"], "0"))


@case_for(ALL, name)
def asks_for_a_head_alone(mode):
    got = curl(mode, "/download?bytes=100000").fields()
    head = curl(mode, "/download?bytes=100000", "--head")
    same((head.status(), head.fields()["content-length"], head.fields()["x-sha256"]), (200, "100000", got["x-sha256"]))
    same(set(head.fields()), set(got), "fields")


@case_for(ALL, name)
def takes_gzip_as_the_upstream_made_it(mode):
    packed = curl(mode, "/gzip", "-H", "accept-encoding: gzip")
    same((packed.status(), packed.fields()["content-encoding"]), (200, "gzip"))
    same(hashlib.sha256(packed.out).hexdigest(), packed.fields()["x-packed"])
    unpacked, plain = curl(mode, "/gzip", "--compressed"), curl(mode, "/gzip")
    holds("content-encoding" not in plain.fields(), "nobody asked for gzip")
    same(hashlib.sha256(unpacked.out).hexdigest(), hashlib.sha256(plain.out).hexdigest())


@case_for(ALL, name)
def sees_each_event_when_it_is_sent(mode):
    meeting = key()
    command = ["curl", "-q", "-sS", "-N", "--noproxy", "*", "--max-time", str(DEADLINE), *mode[1], f"{mode[2]}/events?key={meeting}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as stream:
        first = [stream.stdout.readline() for _ in range(3)]
        same(first, [b"id: 1\n", b"data: one\n", b"\n"])
        Curl(f"{HTTP}/happen?key={meeting}")
        same(stream.stdout.read(), b"id: 2\nevent: last\ndata: two\n\n")
    same(stream.returncode, 0, "exit code")


@case_for(ALL, name)
def is_told_of_its_limit_and_refused(mode):
    mine = ["-H", f"x-case: {key()}"]
    for left in 1, 0:
        fields = curl(mode, "/few/echo", *mine).fields()
        same((fields["x-ratelimit-limit"], fields["x-ratelimit-remaining"]), ("2", str(left)))
        holds(fields["ratelimit"].startswith(f'"few";r={left};t='), fields["ratelimit"])
    answer = curl(mode, "/few/echo", *mine)
    fields = answer.fields()
    same((answer.status(), fields["ratelimit-policy"], fields["cache-control"]), (429, '"few";q=2;w=3600', "no-store"))
    wait = int(fields["retry-after"])
    holds(1700 < wait <= 1800 and fields["ratelimit"] == f'"few";r=0;t={wait}', f"{wait}: {fields['ratelimit']}")
    body = json.loads(answer.out)
    same((body["error"], body["limit"], body["retry_after"]), ("rate_limit_exceeded", "few", wait))


@case_for([H1, H2], name)
def comes_back_by_itself_when_it_may(mode):
    def twice(case):
        for _ in range(2):
            same(curl(mode, "/later/echo", "-H", f"x-case: {case}", "--retry", "3").status(), 200)

    # And no second refusal: it has waited for the 2 s that it was told, where its own backoff begins with 1 s.
    same(refusals("later", twice), 1.0, "refusals")


@case
def gives_up_when_retry_after_is_too_long():
    mine = ["-H", f"x-case: {key()}"]
    for _ in range(2):
        curl(H1, "/few/echo", *mine)
    answer = curl(H1, "/few/echo", *mine, "--retry", "3", "--retry-max-time", "5", "--fail")
    same((answer.code, len(answer.heads)), (22, 1))


@case_for(ALL, name)
def reads_the_refusal_of_a_body_that_is_too_large(mode):
    body = hashlib.shake_128(b"large").digest(512 << 10)
    for length in ["--data-binary", "@-"], ["-T", "-", "-X", "POST"]:
        answer = curl(mode, "/small/echo", *length, "-H", "expect:", stdin=body)
        same((answer.status(), json.loads(answer.out)["error"]), (413, "payload_too_large"))


@case_for(ALL, name)
def takes_trailers(mode):
    answer = curl(mode, "/trailers", "-H", "te: trailers")
    same((answer.status(), answer.out), (200, b"body"))
    same(answer.fields().get("x-digest"), hashlib.sha256(b"body").hexdigest())


@case_for(REUSED, name)
def asks_for_twenty_at_once(mode):
    listener = "secure" if mode[2] == HTTPS else "clear"
    before = metric("tollgate_connections_total", listener=listener)
    urls = f"{mode[2]}/barrier?key={key()}&together=20&request=[1-20]"
    at_once = ["--parallel", "--parallel-max", "20", "--parallel-immediate" if mode[3] == "1.1" else "--no-parallel-immediate"]
    answer = Curl(*mode[1], *at_once, "-o", "/dev/null", "-w", "%{http_code}\n", urls)
    same((answer.code, answer.out.split()), (0, [b"200"] * 20), answer.err)
    if mode[3] == "2":
        same(metric("tollgate_connections_total", listener=listener) - before, 1.0, "connections")


@case_for([H1, H2C, H2], name)
def leaves_within_a_download(mode):
    meeting = key()
    command = ["curl", "-q", "-sS", "-N", "--noproxy", "*", *mode[1], f"{mode[2]}/endless?key={meeting}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as stream:
        same(len(stream.stdout.read(1 << 20)), 1 << 20)
        stream.kill()
    same(curl(H1, f"/happened?key={meeting}").status(), 200, "whether the upstream has seen it")


@case
def is_told_that_an_upstream_is_down():
    answer = curl(H1, "/down/echo")
    same((answer.status(), json.loads(answer.out)["error"]), (502, "bad_gateway"))


run_cases()
