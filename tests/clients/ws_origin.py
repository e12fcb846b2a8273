"""The WebSocket upstream: echoes, or does what the last part of the path says."""

import asyncio
import json
from http import HTTPStatus

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from harness import DEADLINE, announce

# How the connections of a key have ended, as their upstream saw it.
ended = {}


def request(connection, head):
    if head.path.endswith("/forbidden"):
        return connection.respond(HTTPStatus.FORBIDDEN, "not you\n")
    return None


def choose(_, offered):
    return next((protocol for protocol in ("chat.v2", "chat.v1") if protocol in offered), None)


async def handle(connection):
    path = connection.request.path.rpartition("/")[2]
    key = connection.request.headers.get("x-case", "")
    try:
        if path == "bye":
            return await connection.close(4001, "as you wish")
        if path == "head":
            return await connection.send(json.dumps({name.lower(): value for name, value in connection.request.headers.raw_items()}))
        if path == "many":
            for number in range(int(await connection.recv())):
                await connection.send(f"{number} " + "x" * 1000)
            return await connection.recv()
        if path.startswith("ended"):
            return await connection.send(await asyncio.wait_for(ended.setdefault(path, asyncio.Future()), DEADLINE))
        async for message in connection:
            await connection.send(message)
    except ConnectionClosed:
        pass
    finally:
        await connection.wait_closed()
        future = ended.setdefault(f"ended-{key}", asyncio.Future())
        if not future.done():
            future.set_result(str(connection.close_code))


async def main():
    async with serve(handle, "127.0.0.1", 0, process_request=request, max_size=None, select_subprotocol=choose) as server:
        announce(server.sockets[0].getsockname()[1])
        await server.serve_forever()


asyncio.run(main())
