"""The gRPC upstream: messages are bytes, and no code is generated. The services differ in name only; limits go by that."""

import threading
from collections import defaultdict
from concurrent import futures

import grpc

from harness import DEADLINE, announce

SERVICES = ["clients.Echo", "clients.Few", "clients.Soon", "clients.Bounded", "clients.Small"]

# By key: a call has begun, and has ended.
begun = defaultdict(threading.Event)
ended = defaultdict(threading.Event)


def unary(message, context):
    """Metadata comes back too, in front and behind."""
    asked = dict(context.invocation_metadata())
    context.send_initial_metadata([("x-initial", asked.get("x-custom", "none"))])
    context.set_trailing_metadata([("x-trailing-bin", asked.get("x-custom-bin", b"")), ("x-via", asked.get("via", ""))])
    return message


def length(message, _):
    return str(len(message)).encode()


def client_stream(messages, _):
    return b",".join(messages)


def server_stream(message, _):
    yield from (b"%d" % number for number in range(int(message)))


def bidi(messages, _):
    """Each answer before the next question."""
    for message in messages:
        yield message.upper()


def wait(message, context):
    """Does not answer before the call has ended: its caller has left, or its time has passed."""
    key = message.decode()
    context.add_callback(ended[key].set)
    begun[key].set()
    ended[key].wait(DEADLINE)
    return b""


def wait_stream(message, context):
    yield b"begun"
    yield wait(message, context)


def seen(message, _):
    """`begun KEY` or `ended KEY`: answers when that has happened."""
    what, key = message.decode().split()
    return str({"begun": begun, "ended": ended}[what][key].wait(DEADLINE)).encode()


def time_left(_, context):
    left = context.time_remaining()
    return b"none" if left is None or left > 1e6 else b"%f" % left


def fail(message, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, message.decode())


METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Length": grpc.unary_unary_rpc_method_handler(length),
    "ClientStream": grpc.stream_unary_rpc_method_handler(client_stream),
    "ServerStream": grpc.unary_stream_rpc_method_handler(server_stream),
    "Bidi": grpc.stream_stream_rpc_method_handler(bidi),
    "Wait": grpc.unary_unary_rpc_method_handler(wait),
    "WaitStream": grpc.unary_stream_rpc_method_handler(wait_stream),
    "Seen": grpc.unary_unary_rpc_method_handler(seen),
    "TimeLeft": grpc.unary_unary_rpc_method_handler(time_left),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
}

if __name__ == "__main__":
    server = grpc.server(futures.ThreadPoolExecutor(200), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, METHODS) for service in SERVICES])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    announce(port)
    server.wait_for_termination()
