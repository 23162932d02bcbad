"""A client that sends requests at even intervals, and records the times of granted ones."""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from dataclasses import dataclass, field

from memory import REQUEST, is_complete
from process import MeasurementError

CONNECTIONS = 16
GRANTED, REJECTED = b"HTTP/1.1 200 ", b"HTTP/1.1 429 "

# The begin and the end of a request.
Span = tuple[float, float]

# The longest wait for a response.
RESPONSE_TIMEOUT_SECONDS = 5.0


@dataclass
class Client:
    """A client with several connections and at most one request in flight on each. Times are in seconds of the
    monotonic clock."""

    port: int
    requests: int = 0
    granted: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)  # of granted requests
    begun: dict[socket.socket, float] = field(default_factory=dict)
    idle: deque[socket.socket] = field(default_factory=deque)
    responses: dict[socket.socket, bytes] = field(default_factory=dict)

    def run(self, rate: int, seconds: float, lead: float) -> None:
        """Sends `rate` requests per second at even intervals, from `lead` seconds before the end of a wall-clock
        second."""
        with selectors.DefaultSelector() as selector:
            try:
                for _ in range(CONNECTIONS):
                    client = socket.create_connection(("127.0.0.1", self.port), RESPONSE_TIMEOUT_SECONDS)
                    selector.register(client, selectors.EVENT_READ)
                    self.idle.append(client)
                time.sleep((1 - lead - time.time()) % 1)
                self.send_requests(selector, time.monotonic(), rate, round(rate * seconds))
            finally:
                for client in list(selector.get_map().values()):
                    client.fileobj.close()  # type: ignore[union-attr]

    def send_requests(self, selector: selectors.BaseSelector, start: float, rate: int, total: int) -> None:
        """Sends requests when they are due. If all connections are busy, sends them as soon as a connection is idle."""
        while self.requests < total or self.responses:
            due = min(total, int((time.monotonic() - start) * rate) + 1)
            while self.requests < due and self.idle:
                client = self.idle.popleft()
                self.begun[client] = time.monotonic()
                client.sendall(REQUEST)
                self.responses[client] = b""
                self.requests += 1
            is_next = self.requests < total and self.idle
            wait = start + self.requests / rate - time.monotonic() if is_next else RESPONSE_TIMEOUT_SECONDS
            ready = selector.select(max(0.0, wait))
            if not ready and not is_next:
                raise MeasurementError("a response did not arrive in time")
            for key, _ in ready:
                self.read(key.fileobj)  # type: ignore[arg-type]

    def read(self, client: socket.socket) -> None:
        received = client.recv(4096)
        if not received or client not in self.responses:
            raise MeasurementError("it closes connections, or sends a response without a request")
        response = self.responses[client] + received
        self.responses[client] = response
        if not is_complete(response):
            return
        if response.startswith(GRANTED):
            self.granted.append(time.monotonic())
            self.spans.append((self.begun[client], self.granted[-1]))
        elif not response.startswith(REJECTED):
            raise MeasurementError(f"unexpected response: {response[:40]!r}")
        del self.responses[client]
        self.idle.append(client)
