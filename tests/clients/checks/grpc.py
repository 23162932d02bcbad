"""grpcio, client and server of gRPC for Python, over HTTP/2 in clear and over TLS."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from checking import Failed, check, expect
from grpc_server import NO_LIMIT, SERVICE, Server
from stage import Stage

Metadata = list[tuple[str, str | bytes]]


class Channel:
    """The methods of the server, through the gateway."""

    def __init__(self, stage: Stage, *options: tuple[str, object], tls: bool = False):
        options = (*NO_LIMIT, ("grpc.use_local_subchannel_pool", 1), *options)
        if tls:
            credentials = grpc.ssl_channel_credentials(stage.certificates.ca.read_bytes())
            address = f"localhost:{stage.tls.rpartition(':')[2]}"
            self.channel = grpc.secure_channel(address, credentials, options)
        else:
            self.channel = grpc.insecure_channel(stage.address, options)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def unary(self, method: str = f"/{SERVICE}/Unary") -> grpc.UnaryUnaryMultiCallable:
        return self.channel.unary_unary(method)

    def many(self, method: str = "Many") -> grpc.UnaryStreamMultiCallable:
        return self.channel.unary_stream(f"/{SERVICE}/{method}")

    def count(self) -> grpc.StreamUnaryMultiCallable:
        return self.channel.stream_unary(f"/{SERVICE}/Count")

    def chat(self) -> grpc.StreamStreamMultiCallable:
        return self.channel.stream_stream(f"/{SERVICE}/Chat")


def error_of(call: grpc.UnaryUnaryMultiCallable, message: bytes = b"", **options: object) -> grpc.RpcError:
    try:
        call(message, **{"timeout": 10, **options})
    except grpc.RpcError as error:
        return error
    raise Failed("the call was answered")


def metadata_of(error: grpc.RpcError) -> dict[str, str | bytes]:
    return {**dict(error.initial_metadata() or ()), **dict(error.trailing_metadata() or ())}


@check("grpcio's calls of all four kinds are answered, in clear and over TLS")
def four_kinds(stage: Stage) -> None:
    for tls in (False, True):
        four_kinds_over(Channel(stage, tls=tls))


def four_kinds_over(channel: Channel) -> None:
    with channel:
        expect("unary", channel.unary()(b"hello", timeout=5), b"hello")
        expect("of the server", list(channel.many()(b"1000", timeout=5)), [b"%d" % n for n in range(1000)])
        expect("of the client", channel.count()(iter([b"x"] * 1000), timeout=5), b"1000")
        sent = [b"%d" % number for number in range(1000)]
        expect("of both", list(channel.chat()(iter(sent), timeout=5)), sent)


@check("each message of a conversation arrives before the next is sent")
def no_message_is_held_back(stage: Stage) -> None:
    with Channel(stage) as channel:
        heard: list[bytes] = []

        def say():
            for number in range(100):
                while len(heard) < number:
                    time.sleep(0.001)
                yield b"%d" % number

        for message in channel.chat()(say(), timeout=10):
            heard.append(message)
        expect("heard", len(heard), 100)


@check("metadata, binary and of trailers, arrives on both sides")
def metadata_arrives(stage: Stage) -> None:
    with Channel(stage) as channel:
        sent: Metadata = [("x-text", "a"), ("x-text", "b"), ("x-blob-bin", bytes(range(256)))]
        _, call = channel.unary().with_call(b"", timeout=5, metadata=sent)
        back = sorted((key, value) for key, value in call.initial_metadata() if key in ("x-text", "x-blob-bin"))
        expect("the head's", back, sorted(sent))
        end = dict(call.trailing_metadata())
        expect("the trailers'", (end["x-end"], end["x-end-bin"]), ("yes", b"\x00\xff"))


@check("an error of the server's is the client's, with its message and metadata")
def errors_arrive(stage: Stage) -> None:
    with Channel(stage) as channel:
        error = error_of(channel.unary(f"/{SERVICE}/Fail"), "no: 100 % \u00e9".encode())
        expect("the error", (error.code(), error.details()), (grpc.StatusCode.FAILED_PRECONDITION, "no: 100 % \u00e9"))
        expect("its metadata", metadata_of(error)["x-end"], "failed")
        error = error_of(channel.unary(f"/{SERVICE}/Nothing"))
        expect("of an unknown method", error.code(), grpc.StatusCode.UNIMPLEMENTED)


@check("1,000 calls in turn and 1,000 at once are answered on one channel")
def many_calls(stage: Stage) -> None:
    with Channel(stage) as channel, ThreadPoolExecutor(50) as pool:
        call = channel.unary()
        for number in range(1000):
            expect("in turn", call(b"%d" % number, timeout=5), b"%d" % number)
        numbers = [b"%d" % number for number in range(1000)]
        expect("at once", list(pool.map(lambda number: call(number, timeout=10), numbers)), numbers)


@check("grpcio's calls of all four kinds are answered over TLS on both sides")
def tls_on_both_sides(stage: Stage) -> None:
    four_kinds_over(Channel(stage, ("grpc.default_authority", "secure.test"), tls=True))


@check("messages of 16 MiB pass in both directions, in clear and over TLS")
def large_messages(stage: Stage) -> None:
    message = bytes(range(256)) * (64 * 1024)
    for tls in (False, True):
        with Channel(stage, tls=tls) as channel:
            expect("it is the same", channel.unary()(message, timeout=20) == message, True)


@check("a deadline reaches the server, ends the call there, and is DEADLINE_EXCEEDED to the client")
def deadlines(stage: Stage) -> None:
    with Channel(stage) as channel:
        channel.unary()(b"", timeout=7)
        expect("the time left", 6 < (stage.grpc.seconds_left or 0) <= 7, True)
        error = error_of(channel.unary(f"/{SERVICE}/Hang"), timeout=0.3)
        expect("before the answer", error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        expect("it ends there", stage.grpc.cancelled.acquire(timeout=5), True)
        call = channel.many("HangWithin")(b"first", timeout=0.5)
        expect("the first message", next(call), b"first")
        try:
            next(call)
        except grpc.RpcError as error:
            expect("within the answer", error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        expect("it ends there", stage.grpc.cancelled.acquire(timeout=5), True)


@check("a call that its client cancels ends at the server")
def cancellation(stage: Stage) -> None:
    with Channel(stage) as channel:
        call = channel.many("HangWithin")(b"first", timeout=10)
        next(call)
        call.cancel()
        expect("it ends there", stage.grpc.cancelled.acquire(timeout=5), True)


@check("while its server is away calls are UNAVAILABLE, and the first one after that is answered")
def restarts(stage: Stage) -> None:
    with Channel(stage) as channel:
        call = channel.unary()
        expect("before", call(b"a", timeout=5), b"a")
        stage.grpc.stop()
        expect("while it is away", error_of(call).code(), grpc.StatusCode.UNAVAILABLE)
        stage.grpc = Server(port=stage.grpc.port)
        for _ in range(20):
            expect("after", call(b"b", timeout=5), b"b")


@check("a server that sends its connections away five times a second costs no call, and no stream is broken off")
def is_sent_away(stage: Stage) -> None:
    with Channel(stage, ("grpc.default_authority", "restless.test")) as channel, ThreadPoolExecutor(8) as pool:
        call, numbers = channel.unary(), [b"%d" % number for number in range(100)]
        while len(stage.restless.peers) < 10:
            expect("at once", list(pool.map(lambda number: call(number, timeout=10), numbers)), numbers)
            expect("a stream", len(list(channel.many()(b"1000", timeout=10))), 1000)


@check("a limit is RESOURCE_EXHAUSTED, and tells when to come back")
def is_limited(stage: Stage) -> None:
    for tls in (False, True):
        is_limited_over(stage, Channel(stage, tls=tls))


def is_limited_over(stage: Stage, channel: Channel) -> None:
    with channel:
        limited = channel.unary(f"/{SERVICE}/Limited")
        metadata = [("x-name", stage.name())]
        for _ in range(2):
            limited(b"", timeout=5, metadata=metadata)
        error = error_of(limited, metadata=metadata)
        expect("the status", error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        expect("the message", error.details().startswith("the same request will pass in "), True)
        told = metadata_of(error)
        expect("retry-after", 3590 <= int(told["retry-after"]) <= 3600, True)
        expect("the pushback", int(told["grpc-retry-pushback-ms"]), 1000 * int(told["retry-after"]))
        limited(b"", timeout=5, metadata=[("x-name", stage.name())])


@check("a client with a retry policy comes back when it is told to, and is answered")
def comes_back(stage: Stage) -> None:
    policy = {
        "maxAttempts": 3,
        "initialBackoff": "0.01s",
        "maxBackoff": "0.01s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    }
    config = {"methodConfig": [{"name": [{"service": SERVICE}], "retryPolicy": policy}]}
    with Channel(stage, ("grpc.service_config", json.dumps(config))) as channel:
        call, metadata = channel.unary(f"/{SERVICE}/Patient"), [("x-name", stage.name())]
        call(b"", timeout=5, metadata=metadata)
        begin = time.monotonic()
        expect("the answer", call(b"second", timeout=5, metadata=metadata), b"second")
        # Its own backoff would have had it refused three times within 0.03 s.
        expect("it waited", time.monotonic() - begin > 0.5, True)


@check("an upstream that is not there is UNAVAILABLE, one that is silent DEADLINE_EXCEEDED")
def is_told_of_failures(stage: Stage) -> None:
    with Channel(stage) as channel:
        expect("not there", error_of(channel.unary("/closed/plain")).code(), grpc.StatusCode.UNAVAILABLE)
        expect("silent", error_of(channel.unary("/hang")).code(), grpc.StatusCode.DEADLINE_EXCEEDED)
