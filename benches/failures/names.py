"""A DNS server with one name, on a free UDP port of the loopback interface."""

from __future__ import annotations

import socket
import struct
import threading

# The name of all upstreams.
NAME = "api.test"

# The seconds for which an answer is valid.
TTL = 1

A, IN = 1, 1


class Names:
    """Answers queries for A records with the current addresses. Other queries have an empty answer."""

    def __init__(self, addresses: list[str]):
        self.addresses = list(addresses)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def remove(self, address: str) -> None:
        self.addresses = [other for other in self.addresses if other != address]

    def stop(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", ("127.0.0.1", self.port))
        self.thread.join()
        self.socket.close()

    def serve(self) -> None:
        while True:
            query, client = self.socket.recvfrom(4096)
            if not query:
                return
            if len(query) > 12:
                self.socket.sendto(self.answer(query), client)

    def answer(self, query: bytes) -> bytes:
        """Returns the response to a query with one question."""
        end = 12
        while query[end]:
            end += 1 + query[end]
        end += 1
        kind, _ = struct.unpack("!HH", query[end : end + 4])
        records = self.addresses if kind == A else []
        # A response with recursion, with the question of the query, without its additional records.
        head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, len(records), 0, 0) + query[12 : end + 4]
        pointer = 0xC00C  # the name of the question
        answers = (struct.pack("!HHHIH", pointer, A, IN, TTL, 4) + socket.inet_aton(address) for address in records)
        return head + b"".join(answers)
