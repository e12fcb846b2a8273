"""httpx: HTTP/1.1 and HTTP/2, in clear text and over TLS, blocking and not."""

import asyncio
import hashlib
import ssl
import time

import httpx

from harness import DEADLINE, case, case_for, holds, key, metric, place, run_cases, same

HTTP, HTTPS = place("http"), place("https")
TRUST = ssl.create_default_context(cafile=place("ca"))

# Name, options of the client, what is spoken.
H1 = ("h1", {"base_url": HTTP}, "HTTP/1.1")
H1_TLS = ("h1 over TLS", {"base_url": HTTPS}, "HTTP/1.1")
H2C = ("h2c", {"base_url": HTTP, "http1": False, "http2": True}, "HTTP/2")
H2 = ("h2", {"base_url": HTTPS, "http2": True}, "HTTP/2")
ALL = [H1, H1_TLS, H2C, H2]


def client(mode, kind=httpx.Client, **more):
    return kind(verify=TRUST, timeout=DEADLINE, trust_env=False, **mode[1], **more)


def name(mode):
    return mode[0]


def connections(mode):
    return metric("tollgate_connections_total", listener="secure" if mode[1]["base_url"] == HTTPS else "clear")


@case_for(ALL, name)
def keeps_its_connection(mode):
    before = connections(mode)
    with client(mode) as session:
        for number in range(30):
            response = session.get(f"/echo?number={number}")
            same((response.status_code, response.http_version), (200, mode[2]))
            same(response.json()["path"], f"/echo?number={number}")
    same(connections(mode) - before, 1.0, "connections")


@case
def does_not_believe_a_certificate_of_an_authority_it_does_not_know():
    try:
        httpx.get(f"{HTTPS}/echo", trust_env=False)
    except httpx.ConnectError as error:
        holds("CERTIFICATE_VERIFY_FAILED" in str(error), str(error))
    else:
        raise AssertionError("it did")


@case_for(ALL, name)
def sends_and_takes_8_mib(mode):
    body = hashlib.shake_128(b"httpx").digest(8 << 20)
    with client(mode) as session:
        same(session.post("/echo", content=body).json()["sha256"], hashlib.sha256(body).hexdigest())
        pieces = (body[at : at + 100_000] for at in range(0, len(body), 100_000))
        seen = session.post("/echo", content=pieces).json()
        same((seen["sha256"], seen["headers"].get("transfer-encoding")), (hashlib.sha256(body).hexdigest(), "chunked"))
        for more in "", "&chunked=1":
            digest = hashlib.sha256()
            with session.stream("GET", f"/download?bytes={8 << 20}{more}") as response:
                for piece in response.iter_bytes():
                    digest.update(piece)
            same(digest.hexdigest(), response.headers["x-sha256"])


@case_for(ALL, name)
def asks_for_a_head_alone(mode):
    with client(mode) as session:
        head, got = session.head("/download?bytes=100000"), session.get("/download?bytes=100000")
        same((head.content, head.headers["content-length"], head.headers["x-sha256"]), (b"", "100000", got.headers["x-sha256"]))


@case_for(ALL, name)
def takes_gzip_as_the_upstream_made_it(mode):
    with client(mode) as session:
        with session.stream("GET", "/gzip", headers={"accept-encoding": "gzip"}) as response:
            raw = b"".join(response.iter_raw())
        same(hashlib.sha256(raw).hexdigest(), response.headers["x-packed"])
        same(session.get("/gzip").text, session.get("/gzip", headers={"accept-encoding": "identity"}).text)


@case_for(ALL, name)
def sees_each_event_when_it_is_sent(mode):
    meeting = key()
    with client(mode) as session, session.stream("GET", f"/events?key={meeting}") as response:
        lines = response.iter_lines()
        same([next(lines) for _ in range(3)], ["id: 1", "data: one", ""])
        with client(mode) as other:
            other.get(f"/happen?key={meeting}")
        same(list(lines), ["id: 2", "event: last", "data: two", ""])


@case_for(ALL, name)
def gets_through_after_the_wait_it_was_told(mode):
    with client(mode, headers={"x-case": key()}) as session:
        answers = (session.get("/soon/echo") for _ in range(20))
        refused = next(answer for answer in answers if answer.status_code != 200)
        same((refused.status_code, refused.headers["retry-after"]), (429, "1"))
        same((refused.headers["ratelimit"], refused.json()["error"]), ('"soon";r=0;t=1', "rate_limit_exceeded"))
        time.sleep(int(refused.headers["retry-after"]))
        same(session.get("/soon/echo").status_code, 200, "after the wait")


@case_for(ALL, name)
def reads_the_refusal_of_a_body_that_is_too_large(mode):
    body = b"x" * (512 << 10)
    with client(mode) as session:
        for content in body, (body[at : at + 10_000] for at in range(0, len(body), 10_000)):
            response = session.post("/small/echo", content=content)
            same((response.status_code, response.json()["error"]), (413, "payload_too_large"))
        same(session.get("/echo").status_code, 200, "the next request")


@case_for(ALL, name)
def takes_a_body_with_trailers(mode):
    with client(mode) as session:
        for _ in range(3):
            response = session.get("/trailers", headers={"te": "trailers"})
            same((response.status_code, response.text), (200, "body"))


@case_for(ALL, name)
def asks_for_fifty_at_once(mode):
    async def ask():
        async with client(mode, httpx.AsyncClient) as session:
            # HTTP/2 shares what is there; whoever comes before it is there makes his own.
            await session.get("/echo")
            asked = (session.get(f"/barrier?key={meeting}&together=50") for _ in range(50))
            return [response.status_code for response in await asyncio.gather(*asked)]

    meeting, before = key(), connections(mode)
    same(asyncio.run(ask()), [200] * 50)
    same(connections(mode) - before, 1.0 if mode[2] == "HTTP/2" else 50.0, "connections")


@case_for(ALL, name)
def leaves_within_a_download(mode):
    meeting = key()
    # It closes its connection: httpx resets no streams of HTTP/2.
    with client(mode) as session, session.stream("GET", f"/endless?key={meeting}") as response:
        next(response.iter_bytes())
    with client(mode) as session:
        same(session.get(f"/happened?key={meeting}").status_code, 200, "whether the upstream has seen it")


run_cases()
