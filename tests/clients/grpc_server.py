"""A gRPC server behind the gateway, by grpcio. Its messages are plain bytes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Iterator

import grpc

SERVICE = "test.Echo"
NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Server:
    """Records cancelled calls, the remaining time of the last call, and the peer addresses."""

    def __init__(
        self, credentials: grpc.ServerCredentials | None = None, port: int = 0, *options: tuple[str, int]
    ):
        self.cancelled = threading.Semaphore(0)
        self.seconds_left: float | None = None
        self.peers: set[str] = set()
        self.server = grpc.server(ThreadPoolExecutor(64), options=[*NO_LIMIT, ("grpc.so_reuseport", 0), *options])
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, self.methods())])
        address = f"127.0.0.1:{port}"
        listen = self.server.add_secure_port if credentials else self.server.add_insecure_port
        self.port = listen(address, *([credentials] if credentials else []))
        self.server.start()

    def methods(self) -> dict[str, grpc.RpcMethodHandler]:
        return {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "Limited": grpc.unary_unary_rpc_method_handler(self.unary),
            "Patient": grpc.unary_unary_rpc_method_handler(self.unary),
            "Many": grpc.unary_stream_rpc_method_handler(self.many),
            "Count": grpc.stream_unary_rpc_method_handler(self.count),
            "Chat": grpc.stream_stream_rpc_method_handler(self.chat),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "Hang": grpc.unary_unary_rpc_method_handler(self.hang),
            "HangWithin": grpc.unary_stream_rpc_method_handler(self.hang_within),
        }

    def unary(self, message: bytes, context: grpc.ServicerContext) -> bytes:
        self.seconds_left = context.time_remaining()
        self.peers.add(context.peer())
        result = [(key, value) for key, value in context.invocation_metadata() if key.startswith("x-")]
        context.send_initial_metadata(result)
        context.set_trailing_metadata([("x-end", "yes"), ("x-end-bin", b"\x00\xff")])
        return message

    def many(self, message: bytes, _: grpc.ServicerContext) -> Iterator[bytes]:
        """Returns `message` messages."""
        for number in range(int(message)):
            yield b"%d" % number

    def count(self, messages: Iterator[bytes], _: grpc.ServicerContext) -> bytes:
        return b"%d" % sum(1 for _ in messages)

    def chat(self, messages: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        yield from messages

    def fail(self, message: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata([("x-end", "failed")])
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, message.decode())

    def hang(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        self.end_of(context).wait(60)
        return b""

    def hang_within(self, message: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        over = self.end_of(context)  # before the message: the client may cancel as soon as it has arrived
        yield message
        over.wait(60)

    def end_of(self, context: grpc.ServicerContext) -> threading.Event:
        """Returns an event that is set when the call has ended. Counts the end."""
        over = threading.Event()

        def end() -> None:
            self.cancelled.release()
            over.set()

        if not context.add_callback(end):  # the call has already ended
            end()
        return over

    def stop(self) -> None:
        self.server.stop(0).wait()
