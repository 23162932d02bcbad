"""Requests at an even pace, and when their answers were granted ones."""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from dataclasses import dataclass, field

from memory import REQUEST, is_whole
from process import Failed

CONNECTIONS = 16
GRANTED, REFUSED = b"HTTP/1.1 200 ", b"HTTP/1.1 429 "

# Without any answer, no longer is waited for one.
PATIENCE_SECONDS = 5.0


@dataclass
class Asker:
    """A client with some connections, one request on each at a time. Times are in seconds of its own clock."""

    port: int
    asked: int = 0
    granted: list[float] = field(default_factory=list)
    idle: deque[socket.socket] = field(default_factory=deque)
    answers: dict[socket.socket, bytes] = field(default_factory=dict)

    def ask(self, rate: int, seconds: float, lead: float) -> None:
        """Asks `rate` times a second, evenly, beginning `lead` before a second of the clock on the wall ends."""
        with selectors.DefaultSelector() as selector:
            try:
                for _ in range(CONNECTIONS):
                    client = socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS)
                    selector.register(client, selectors.EVENT_READ)
                    self.idle.append(client)
                time.sleep((1 - lead - time.time()) % 1)
                self.keep_asking(selector, time.monotonic(), rate, round(rate * seconds))
            finally:
                for client in list(selector.get_map().values()):
                    client.fileobj.close()  # type: ignore[union-attr]

    def keep_asking(self, selector: selectors.BaseSelector, start: float, rate: int, requests: int) -> None:
        """What is due while all connections wait is asked as soon as one does not."""
        while self.asked < requests or self.answers:
            due = min(requests, int((time.monotonic() - start) * rate) + 1)
            while self.asked < due and self.idle:
                client = self.idle.popleft()
                client.sendall(REQUEST)
                self.answers[client] = b""
                self.asked += 1
            is_next = self.asked < requests and self.idle
            wait = start + self.asked / rate - time.monotonic() if is_next else PATIENCE_SECONDS
            ready = selector.select(max(0.0, wait))
            if not ready and not is_next:
                raise Failed("an answer does not come")
            for key, _ in ready:
                self.read(key.fileobj)  # type: ignore[arg-type]

    def read(self, client: socket.socket) -> None:
        more = client.recv(4096)
        if not more or client not in self.answers:
            raise Failed("it closes connections, or answers what was not asked")
        answer = self.answers[client] + more
        self.answers[client] = answer
        if not is_whole(answer):
            return
        if answer.startswith(GRANTED):
            self.granted.append(time.monotonic())
        elif not answer.startswith(REFUSED):
            raise Failed(f"it answers {answer[:40]!r}")
        del self.answers[client]
        self.idle.append(client)
