"""grpcio: calls of all four kinds, deadlines, cancellation, and what the gateway says to calls that it refuses."""

import json
import random
import threading
import time

import grpc

from harness import DEADLINE, case, case_for, holds, key, metric, place, refusals, run_cases, same

CREDENTIALS = grpc.ssl_channel_credentials(open(place("ca"), "rb").read())
# The name that the certificate is for; its listener is known by its address.
NAMED = ("grpc.ssl_target_name_override", "localhost")
TRANSPORTS = ["h2c", "h2"]
LARGE = 16 << 20


def channel(transport, **options):
    """Each its own connection: gRPC would share one among the channels of a process."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)] + [
        (f"grpc.{name}", value) for name, value in options.items()
    ]
    if transport == "h2c":
        return grpc.insecure_channel(place("http").removeprefix("http://"), options)
    return grpc.secure_channel(place("named"), CREDENTIALS, [*options, NAMED])


def unary(to, method, message=b"", service="Echo", timeout=DEADLINE, **more):
    return to.unary_unary(f"/clients.{service}/{method}")(message, timeout=timeout, **more)


def refused(call):
    """The error that a call ends with."""
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call was answered")


def happened(to, what, meeting):
    same(unary(to, "Seen", f"{what} {meeting}".encode()), b"True", f"whether the call has {what} at the upstream")


@case_for(TRANSPORTS)
def calls_and_is_answered_on_one_connection(transport):
    listener = "clear" if transport == "h2c" else "named"
    before = metric("tollgate_connections_total", listener=listener)
    with channel(transport) as to:
        for number in range(50):
            same(unary(to, "Unary", b"%d" % number), b"%d" % number)
        same(unary(to, "Unary", b""), b"", "an empty message")
    same(metric("tollgate_connections_total", listener=listener) - before, 1.0, "connections")


@case
def does_not_believe_a_certificate_of_an_authority_it_does_not_know():
    with grpc.secure_channel(place("named"), grpc.ssl_channel_credentials(), [NAMED, ("grpc.enable_http_proxy", 0)]) as to:
        same(refused(lambda: unary(to, "Unary")).code(), grpc.StatusCode.UNAVAILABLE)


@case_for(TRANSPORTS)
def streams_to_the_server(transport):
    with channel(transport) as to:
        messages = [b"%d" % number for number in range(1000)]
        same(to.stream_unary("/clients.Echo/ClientStream")(iter(messages), timeout=DEADLINE), b",".join(messages))


@case_for(TRANSPORTS)
def takes_a_stream_of_the_server(transport):
    with channel(transport) as to:
        answers = to.unary_stream("/clients.Echo/ServerStream")(b"1000", timeout=DEADLINE)
        same(list(answers), [b"%d" % number for number in range(1000)])


@case_for(TRANSPORTS)
def talks_back_and_forth(transport):
    """Each question is asked when the one before it has been answered: nothing on the way may wait for more."""
    with channel(transport) as to:
        turn = threading.Semaphore(1)

        def questions():
            for number in range(100):
                holds(turn.acquire(timeout=DEADLINE), "no answer")
                yield b"question %d" % number

        answers = []
        for answer in to.stream_stream("/clients.Echo/Bidi")(questions(), timeout=DEADLINE):
            answers.append(answer)
            turn.release()
        same(answers, [b"QUESTION %d" % number for number in range(100)])


@case_for(TRANSPORTS)
def sends_and_takes_16_mib(transport):
    message = random.Random(16).randbytes(LARGE)
    with channel(transport) as to:
        same(unary(to, "Length", message), str(LARGE).encode())
        holds(unary(to, "Unary", message) == message, "another message came back")
        packed = unary(to, "Unary", b"a" * LARGE, compression=grpc.Compression.Gzip)
        holds(packed == b"a" * LARGE, "another message came back from a compressed one")


@case_for(TRANSPORTS)
def has_metadata_in_both_directions(transport):
    with channel(transport) as to:
        secret = bytes(range(256))
        method = to.unary_unary("/clients.Echo/Unary")
        _, call = method.with_call(b"", timeout=DEADLINE, metadata=[("x-custom", "yes"), ("x-custom-bin", secret)])
        same(dict(call.initial_metadata()).get("x-initial"), "yes")
        behind = dict(call.trailing_metadata())
        same((behind["x-trailing-bin"], behind["x-via"]), (secret, "2 tollgate"))


@case_for(TRANSPORTS)
def has_a_hundred_calls_at_once(transport):
    with channel(transport) as to:
        meetings = [key() for _ in range(100)]
        calls = [to.unary_unary("/clients.Echo/Wait").future(meeting.encode(), timeout=DEADLINE) for meeting in meetings]
        for meeting in meetings:
            happened(to, "begun", meeting)
        for call in calls:
            call.cancel()


@case_for(TRANSPORTS)
def gets_the_status_of_the_server(transport):
    with channel(transport) as to:
        error = refused(lambda: unary(to, "Fail", "not so: 100 % Ü".encode()))
        same((error.code(), error.details()), (grpc.StatusCode.FAILED_PRECONDITION, "not so: 100 % Ü"))
        same(refused(lambda: unary(to, "Nothing")).code(), grpc.StatusCode.UNIMPLEMENTED)


@case_for(TRANSPORTS)
def has_a_deadline_that_the_server_knows(transport):
    with channel(transport) as to:
        same(unary(to, "TimeLeft", timeout=None), b"none")
        left = float(unary(to, "TimeLeft", timeout=DEADLINE))
        holds(0 < left < DEADLINE + 1, f"{left} s left")


@case_for(TRANSPORTS)
def ends_at_its_deadline_on_both_sides(transport):
    with channel(transport) as to:
        for method in "Wait", "WaitStream":
            meeting = key()
            kind = to.unary_unary if method == "Wait" else to.unary_stream
            call = kind(f"/clients.Echo/{method}")
            error = refused(lambda: list(call(meeting.encode(), timeout=0.5)))
            same(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
            happened(to, "ended", meeting)


@case_for(TRANSPORTS)
def is_told_of_a_deadline_of_the_gateway(transport):
    with channel(transport) as to:
        meeting = key()
        error = refused(lambda: unary(to, "Wait", meeting.encode(), service="Bounded"))
        same(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        happened(to, "ended", meeting)


@case_for(TRANSPORTS)
def cancels_and_the_server_knows(transport):
    with channel(transport) as to:
        meeting = key()
        call = to.unary_unary("/clients.Echo/Wait").future(meeting.encode(), timeout=DEADLINE)
        happened(to, "begun", meeting)
        call.cancel()
        happened(to, "ended", meeting)
        meeting = key()
        stream = to.unary_stream("/clients.Echo/WaitStream")(meeting.encode(), timeout=DEADLINE)
        same(next(stream), b"begun")
        stream.cancel()
        happened(to, "ended", meeting)
        same(unary(to, "Unary", b"and on"), b"and on")


@case_for(TRANSPORTS)
def is_refused_and_told_when_to_come_back(transport):
    mine = [("x-case", key())]
    with channel(transport) as to:
        for left in "1", "0":
            _, call = to.unary_unary("/clients.Few/Unary").with_call(b"", timeout=DEADLINE, metadata=mine)
            same(dict(call.initial_metadata())["x-ratelimit-remaining"], left)
        error = refused(lambda: unary(to, "Unary", service="Few", metadata=mine))
        same(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        holds("limit few is exhausted" in error.details(), error.details())
        told = dict(error.trailing_metadata())
        wait = int(told["retry-after"])
        holds(1700 < wait <= 1800 and told["ratelimit"] == f'"few";r=0;t={wait}', str(told))
        # A stream is one call, and refused before anything of it is read.
        stream = to.stream_stream("/clients.Few/Bidi")(iter([b"a", b"b"]), timeout=DEADLINE, metadata=mine)
        same(refused(lambda: list(stream)).code(), grpc.StatusCode.RESOURCE_EXHAUSTED)


@case_for(TRANSPORTS)
def comes_back_by_itself_when_told_to(transport):
    policy = {
        "maxAttempts": 5,
        "initialBackoff": "0.6s",
        "maxBackoff": "2s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    }
    config = json.dumps({"methodConfig": [{"name": [{"service": "clients.Soon"}], "retryPolicy": policy}]})
    with channel(transport, service_config=config, enable_retries=1) as to:

        def twice(case):
            for message in b"1", b"2":
                same(unary(to, "Unary", message, service="Soon", metadata=[("x-case", case)]), message)

        refusals("soon", twice)


@case_for(TRANSPORTS)
def gets_through_after_the_wait_it_was_told(transport):
    mine = [("x-case", key())]
    with channel(transport) as to:
        error = refused(lambda: [unary(to, "Unary", service="Soon", metadata=mine) for _ in range(20)])
        time.sleep(int(dict(error.trailing_metadata())["retry-after"]))
        same(unary(to, "Unary", b"again", service="Soon", metadata=mine), b"again")


@case_for(TRANSPORTS)
def is_told_that_a_message_is_too_large(transport):
    with channel(transport) as to:
        same(unary(to, "Length", b"x" * 60_000, service="Small"), b"60000")
        error = refused(lambda: unary(to, "Length", b"x" * 500_000, service="Small"))
        same(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED, error.details())


@case_for(TRANSPORTS)
def is_told_that_the_server_is_down(transport):
    with channel(transport) as to:
        same(refused(lambda: unary(to, "Unary", service="Down")).code(), grpc.StatusCode.UNAVAILABLE)


run_cases()
