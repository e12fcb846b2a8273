"""websockets, the Python library: connections through the gateway, over HTTP/1.1."""

import asyncio
import json
import random
import ssl

from websockets.asyncio.client import connect as connect_to
from websockets.exceptions import ConnectionClosed, InvalidStatus

from harness import DEADLINE, Gateway, case, case_for, holds, key, place, run_cases, same

TRUST = ssl.create_default_context(cafile=place("ca"))
SCHEMES = ["ws", "wss"]


def connect(scheme, path, base=None, case=None, **more):
    base = base or place("http" if scheme == "ws" else "https").replace("http", "ws", 1)
    tls = {"ssl": TRUST} if scheme == "wss" else {}
    headers = {"x-case": case or key()}
    options = {"max_size": None, "proxy": None, "open_timeout": DEADLINE, "close_timeout": DEADLINE, "additional_headers": headers}
    return connect_to(base + path, **(options | tls | more))


def sockets(test):
    """An asynchronous case, for both schemes, in a bounded time."""

    def run(scheme):
        asyncio.run(asyncio.wait_for(test(scheme), DEADLINE))

    run.__name__ = test.__name__
    case_for(SCHEMES)(run)
    return test


async def closed(connection):
    """How the other side has closed."""
    try:
        while True:
            await connection.recv()
    except ConnectionClosed as end:
        return end.rcvd and end.rcvd.code


async def refused(connecting):
    try:
        async with connecting:
            raise AssertionError("it was let in")
    except InvalidStatus as error:
        return error.response


async def at_upstream(scheme, case):
    """The code with which a connection has ended for the upstream."""
    async with connect(scheme, f"/ended-{case}") as connection:
        return await connection.recv()


@sockets
async def is_echoed(scheme):
    async with connect(scheme, "/echo") as connection:
        for message in "text", "", "Ümläut ✓", b"", bytes(range(256)):
            await connection.send(message)
            same(await connection.recv(), message)
        await asyncio.wait_for(await connection.ping(b"are you there"), DEADLINE)
        holds("PerMessageDeflate" in str(connection.protocol.extensions), f"extensions: {connection.protocol.extensions}")


@sockets
async def does_without_compression(scheme):
    async with connect(scheme, "/echo", compression=None) as connection:
        same(connection.protocol.extensions, [])
        await connection.send("plain")
        same(await connection.recv(), "plain")


@sockets
async def sends_and_takes_8_mib(scheme):
    message = random.Random(8).randbytes(8 << 20)
    for compression in None, "deflate":
        async with connect(scheme, "/echo", compression=compression) as connection:
            await connection.send(message)
            holds(await connection.recv() == message, "another message came back")
            await connection.send(message[at : at + 100_000] for at in range(0, len(message), 100_000))
            holds(await connection.recv() == message, "another message came back, of one in pieces")


@sockets
async def takes_10000_messages_in_their_order(scheme):
    async with connect(scheme, "/many") as connection:
        await connection.send("10000")
        same([int((await connection.recv()).split()[0]) for _ in range(10_000)], list(range(10_000)))


@sockets
async def agrees_on_a_protocol(scheme):
    async with connect(scheme, "/echo", subprotocols=["chat.v1", "other"]) as connection:
        same(connection.subprotocol, "chat.v1")


@sockets
async def is_known_to_the_upstream(scheme):
    async with connect(scheme, "/head") as connection:
        seen = json.loads(await connection.recv())
        same((seen["via"], seen["x-forwarded-for"]), ("1.1 tollgate", "127.0.0.1"))
        same(seen["x-forwarded-proto"], "https" if scheme == "wss" else "http")


@sockets
async def hears_how_the_upstream_closes(scheme):
    async with connect(scheme, "/bye") as connection:
        same(await closed(connection), 4001)
        same(connection.close_reason, "as you wish")


@sockets
async def closes_and_the_upstream_hears_how(scheme):
    case = key()
    async with connect(scheme, "/echo", case=case) as connection:
        await connection.close(4002, "enough")
    same(await at_upstream(scheme, case), "4002")


@sockets
async def breaks_off_and_the_upstream_notices(scheme):
    case = key()
    async with connect(scheme, "/echo", case=case) as connection:
        await connection.send("hello")
        await connection.recv()
        connection.transport.abort()
    same(await at_upstream(scheme, case), "1006")


@sockets
async def is_refused_over_a_limit(scheme):
    case = key()
    async with connect(scheme, "/few/echo", case=case) as connection:
        await connection.send("once")
        same(await connection.recv(), "once")
    response = await refused(connect(scheme, "/few/echo", case=case))
    same((response.status_code, response.headers["ratelimit-policy"]), (429, '"few";q=1;w=3600'))
    holds(3500 < int(response.headers["retry-after"]) <= 3600, response.headers["retry-after"])


@sockets
async def holds_its_slot_until_it_ends(scheme):
    case = key()
    async with connect(scheme, "/open/echo", case=case) as connection:
        await connection.send("mine")
        await connection.recv()
        same((await refused(connect(scheme, "/open/echo", case=case))).status_code, 429)
    # The slot is free when both sides have ended, which this side can't see.
    for _ in range(100):
        try:
            async with connect(scheme, "/open/echo", case=case):
                return
        except InvalidStatus as error:
            same(error.response.status_code, 429)
            await asyncio.sleep(0.05)
    raise AssertionError("the slot is not given back")


@sockets
async def is_answered_by_the_upstream_instead(scheme):
    response = await refused(connect(scheme, "/forbidden"))
    same((response.status_code, response.body), (403, b"not you\n"))


@sockets
async def is_no_websocket_on_a_route_without_them(scheme):
    """The upstream sees a plain GET, and says what it thinks of that."""
    holds((await refused(connect(scheme, "/plain/echo"))).status_code in (400, 426), "not refused as a plain GET")


@sockets
async def is_closed_for_a_message_that_is_too_large(scheme):
    async with connect(scheme, "/small/echo", compression=None) as connection:
        await connection.send("x" * 1024)
        same(len(await connection.recv()), 1024)
        await connection.send("x" * 1025)
        same(await closed(connection), 1009)


@sockets
async def is_closed_for_too_many_messages(scheme):
    async with connect(scheme, "/talk/echo") as connection:
        for number in range(3):
            await connection.send(str(number))
            same(await connection.recv(), str(number))
        await connection.send("one too many")
        same(await closed(connection), 1008)


@sockets
async def is_closed_when_idle(scheme):
    case = key()
    async with connect(scheme, "/idle/echo", case=case) as connection:
        same(await closed(connection), 1001)
    same(await at_upstream(scheme, case), "1001")


@sockets
async def has_a_hundred_connections(scheme):
    async def talk(number):
        async with connect(scheme, "/echo") as connection:
            for turn in range(10):
                await connection.send(f"{number} {turn}")
                same(await connection.recv(), f"{number} {turn}")

    await asyncio.gather(*(talk(number) for number in range(100)))


@case
def is_closed_with_1001_when_the_gateway_stops():
    async def stop(gateway):
        async with connect("ws", "/echo", base=f"ws://{gateway.address('clear')}") as connection:
            await connection.send("hello")
            await connection.recv()
            gateway.terminate()
            return await closed(connection)

    gateway = Gateway(place("gateway"), place("yaml"))
    try:
        same(asyncio.run(asyncio.wait_for(stop(gateway), DEADLINE)), 1001)
        same(gateway.ended(), 0, "exit code")
    finally:
        gateway.kill()


run_cases()
