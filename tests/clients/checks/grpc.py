"""grpcio, the gRPC client and server for Python, over HTTP/2 in plaintext and over TLS."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from checking import Failed, check, expect
from grpc_server import NO_LIMIT, SERVICE, Server
from harness import Harness

Metadata = list[tuple[str, str | bytes]]


class Channel:
    """A channel to the server through the gateway, with its methods."""

    def __init__(self, harness: Harness, *options: tuple[str, object], tls: bool = False):
        options = (*NO_LIMIT, ("grpc.use_local_subchannel_pool", 1), *options)
        if tls:
            credentials = grpc.ssl_channel_credentials(harness.certificates.ca.read_bytes())
            address = f"localhost:{harness.tls.rpartition(':')[2]}"
            self.channel = grpc.secure_channel(address, credentials, options)
        else:
            self.channel = grpc.insecure_channel(harness.address, options)

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
    raise Failed("the call succeeded")


def metadata_of(error: grpc.RpcError) -> dict[str, str | bytes]:
    return {**dict(error.initial_metadata() or ()), **dict(error.trailing_metadata() or ())}


@check("calls of all four kinds succeed, in plaintext and over TLS")
def four_kinds(harness: Harness) -> None:
    for tls in (False, True):
        four_kinds_over(Channel(harness, tls=tls))


def four_kinds_over(channel: Channel) -> None:
    with channel:
        expect("unary", channel.unary()(b"hello", timeout=5), b"hello")
        expect("server streaming", list(channel.many()(b"1000", timeout=5)), [b"%d" % n for n in range(1000)])
        expect("client streaming", channel.count()(iter([b"x"] * 1000), timeout=5), b"1000")
        sent = [b"%d" % number for number in range(1000)]
        expect("bidirectional streaming", list(channel.chat()(iter(sent), timeout=5)), sent)


@check("each message of a bidirectional stream arrives before the next one is sent")
def messages_are_not_buffered(harness: Harness) -> None:
    with Channel(harness) as channel:
        received: list[bytes] = []

        def send():
            for number in range(100):
                while len(received) < number:
                    time.sleep(0.001)
                yield b"%d" % number

        for message in channel.chat()(send(), timeout=10):
            received.append(message)
        expect("received", len(received), 100)


@check("metadata arrives on both sides, also binary and in trailers")
def metadata_arrives(harness: Harness) -> None:
    with Channel(harness) as channel:
        sent: Metadata = [("x-text", "a"), ("x-text", "b"), ("x-blob-bin", bytes(range(256)))]
        _, call = channel.unary().with_call(b"", timeout=5, metadata=sent)
        back = sorted((key, value) for key, value in call.initial_metadata() if key in ("x-text", "x-blob-bin"))
        expect("initial metadata", back, sorted(sent))
        end = dict(call.trailing_metadata())
        expect("trailing metadata", (end["x-end"], end["x-end-bin"]), ("yes", b"\x00\xff"))


@check("an error of the server reaches the client with message and metadata")
def errors_arrive(harness: Harness) -> None:
    with Channel(harness) as channel:
        error = error_of(channel.unary(f"/{SERVICE}/Fail"), "no: 100 % \u00e9".encode())
        expect("the error", (error.code(), error.details()), (grpc.StatusCode.FAILED_PRECONDITION, "no: 100 % \u00e9"))
        expect("its metadata", metadata_of(error)["x-end"], "failed")
        error = error_of(channel.unary(f"/{SERVICE}/Nothing"))
        expect("unknown method", error.code(), grpc.StatusCode.UNIMPLEMENTED)


@check("1,000 sequential and 1,000 concurrent calls succeed on one channel")
def many_calls(harness: Harness) -> None:
    with Channel(harness) as channel, ThreadPoolExecutor(50) as pool:
        call = channel.unary()
        for number in range(1000):
            expect("sequential", call(b"%d" % number, timeout=5), b"%d" % number)
        numbers = [b"%d" % number for number in range(1000)]
        expect("concurrent", list(pool.map(lambda number: call(number, timeout=10), numbers)), numbers)


@check("calls of all four kinds succeed with TLS on both sides")
def tls_on_both_sides(harness: Harness) -> None:
    four_kinds_over(Channel(harness, ("grpc.default_authority", "secure.test"), tls=True))


@check("messages of 16 MiB pass in both directions, in plaintext and over TLS")
def large_messages(harness: Harness) -> None:
    message = bytes(range(256)) * (64 * 1024)
    for tls in (False, True):
        with Channel(harness, tls=tls) as channel:
            expect("unchanged", channel.unary()(message, timeout=20) == message, True)


@check("a deadline reaches the server, ends the call there, and is DEADLINE_EXCEEDED for the client")
def deadlines(harness: Harness) -> None:
    with Channel(harness) as channel:
        channel.unary()(b"", timeout=7)
        expect("the time left", 6 < (harness.grpc.seconds_left or 0) <= 7, True)
        error = error_of(channel.unary(f"/{SERVICE}/Hang"), timeout=0.3)
        expect("before the response head", error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        expect("the server's call ends", harness.grpc.cancelled.acquire(timeout=30), True)
        call = channel.many("HangWithin")(b"first", timeout=0.5)
        expect("the first message", next(call), b"first")
        try:
            next(call)
        except grpc.RpcError as error:
            expect("during the response", error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        expect("the server's call ends", harness.grpc.cancelled.acquire(timeout=30), True)


@check("a call that its client cancels ends at the server")
def cancellation(harness: Harness) -> None:
    with Channel(harness) as channel:
        call = channel.many("HangWithin")(b"first", timeout=60)
        next(call)
        call.cancel()
        expect("the server's call ends", harness.grpc.cancelled.acquire(timeout=30), True)


@check("calls are UNAVAILABLE while their server is down, and succeed as soon as it is back")
def restarts(harness: Harness) -> None:
    with Channel(harness) as channel:
        call = channel.unary()
        expect("before", call(b"a", timeout=5), b"a")
        harness.grpc.stop()
        expect("while the server is down", error_of(call).code(), grpc.StatusCode.UNAVAILABLE)
        harness.grpc = Server(port=harness.grpc.port)
        for _ in range(20):
            expect("after", call(b"b", timeout=5), b"b")


@check("no call and no stream fails if the server sends GOAWAY five times per second")
def goaway_fails_no_call(harness: Harness) -> None:
    with Channel(harness, ("grpc.default_authority", "goaway.test")) as channel, ThreadPoolExecutor(8) as pool:
        call, numbers = channel.unary(), [b"%d" % number for number in range(100)]
        while len(harness.goaway.peers) < 10:
            expect("concurrent", list(pool.map(lambda number: call(number, timeout=10), numbers)), numbers)
            expect("a stream", len(list(channel.many()(b"1000", timeout=10))), 1000)


@check("a call over the limit is RESOURCE_EXHAUSTED, with the time until the next attempt")
def is_limited(harness: Harness) -> None:
    for tls in (False, True):
        is_limited_over(harness, Channel(harness, tls=tls))


def is_limited_over(harness: Harness, channel: Channel) -> None:
    with channel:
        limited = channel.unary(f"/{SERVICE}/Limited")
        metadata = [("x-name", harness.name())]
        for _ in range(2):
            limited(b"", timeout=5, metadata=metadata)
        error = error_of(limited, metadata=metadata)
        expect("the status", error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        expect("the message", error.details().startswith("the same request will pass in "), True)
        result = metadata_of(error)
        expect("retry-after", 3590 <= int(result["retry-after"]) <= 3600, True)
        expect("the pushback", int(result["grpc-retry-pushback-ms"]), 1000 * int(result["retry-after"]))
        limited(b"", timeout=5, metadata=[("x-name", harness.name())])


@check("a client with a retry policy waits for that time, and its retry succeeds")
def retry_policy(harness: Harness) -> None:
    policy = {
        "maxAttempts": 3,
        "initialBackoff": "0.01s",
        "maxBackoff": "0.01s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    }
    config = {"methodConfig": [{"name": [{"service": SERVICE}], "retryPolicy": policy}]}
    with Channel(harness, ("grpc.service_config", json.dumps(config))) as channel:
        call, metadata = channel.unary(f"/{SERVICE}/Patient"), [("x-name", harness.name())]
        call(b"", timeout=5, metadata=metadata)
        begin = time.monotonic()
        expect("the response", call(b"second", timeout=5, metadata=metadata), b"second")
        # With its own backoff the client would be rejected three times within 0.03 s.
        expect("waited", time.monotonic() - begin > 0.5, True)


@check("an unreachable upstream is UNAVAILABLE, a silent one DEADLINE_EXCEEDED")
def reports_failures(harness: Harness) -> None:
    with Channel(harness) as channel:
        expect("unreachable", error_of(channel.unary("/closed/plain")).code(), grpc.StatusCode.UNAVAILABLE)
        expect("silent", error_of(channel.unary("/hang")).code(), grpc.StatusCode.DEADLINE_EXCEEDED)
