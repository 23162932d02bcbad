"""A client that sends requests at a constant rate over a fixed number of connections.

A request is timed from when it is due, also if all connections are in use then: a gateway that holds requests back is as
slow for its clients as one that responds late.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from dataclasses import dataclass
from typing import Awaitable, Callable

CONNECTIONS = 64
RATE = 1_000

# The seconds after which the client gives up.
TIMEOUT = 5.0

REQUEST = b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


@dataclass(frozen=True)
class Result:
    """A request: when it was due, in seconds since the start, its duration, and its status, or 0 without a response."""

    due: float
    took: float
    status: int


class Load:
    """The requests of a cell, and the connections that wait for work."""

    def __init__(self, port: int):
        self.port = port
        self.start = time.monotonic()
        self.results: list[Result] = []
        self.waiting: deque[float] = deque()
        self.idle: deque[Connection] = deque()
        self.open: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    def record(self, due: float, status: int) -> None:
        self.results.append(Result(due - self.start, time.monotonic() - due, status))

    def add(self, due: float) -> None:
        self.waiting.append(due)
        self.dispatch()

    def dispatch(self) -> None:
        while self.idle and self.waiting:
            self.idle.popleft().send(self.waiting.popleft())

    def connect(self) -> None:
        task = asyncio.get_running_loop().create_task(self.connect_soon())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def connect_soon(self) -> None:
        while True:
            try:
                await asyncio.get_running_loop().create_connection(lambda: Connection(self), "127.0.0.1", self.port)
                return
            except OSError:
                await asyncio.sleep(0.01)

    def expire(self) -> None:
        """Gives up on requests that take too long."""
        oldest = time.monotonic() - TIMEOUT
        while self.waiting and self.waiting[0] < oldest:
            self.record(self.waiting.popleft(), 0)
        for connection in list(self.open):
            if connection.due is not None and connection.due < oldest:
                connection.transport.abort()

    def is_busy(self) -> bool:
        return bool(self.waiting) or any(connection.due is not None for connection in self.open)


class Connection(asyncio.Protocol):
    """A connection to the gateway. `due` is set while it waits for a response."""

    def __init__(self, load: Load):
        self.load = load
        self.due: float | None = None
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.load.open.add(self)
        self.load.idle.append(self)
        self.load.dispatch()

    def send(self, due: float) -> None:
        self.due = due
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, separator, body = self.received.partition(b"\r\n\r\n")
        length = LENGTH.search(head + b"\r\n")
        if not separator or self.due is None:
            return
        if not length:
            self.transport.abort()  # no gateway sends such a response; it counts as failed
        elif len(body) >= int(length[1]):
            self.load.record(self.due, int(head.split(b" ", 2)[1]))
            self.due, self.received = None, b""
            self.load.idle.append(self)
            self.load.dispatch()

    def connection_lost(self, _: Exception | None) -> None:
        self.load.open.discard(self)
        if self in self.load.idle:
            self.load.idle.remove(self)
        if self.due is not None:
            self.load.record(self.due, 0)
            self.due = None
        self.load.connect()


async def measure(
    port: int, seconds: float, fault_at: float, inject: Callable[[float], Awaitable[None]]
) -> list[Result]:
    """Sends requests for `seconds`, and starts the fault at `fault_at`. Returns all requests."""
    load = Load(port)
    for _ in range(CONNECTIONS):
        load.connect()
    await asyncio.sleep(0.2)
    load.start = time.monotonic()
    end = load.start + seconds
    fault: asyncio.Task[None] | None = None
    for number in range(round(RATE * seconds)):
        due = load.start + number / RATE
        if (wait := due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        if fault is None and due >= load.start + fault_at:
            fault = asyncio.ensure_future(inject(end))
        if number % 100 == 0:
            load.expire()
        load.add(due)
    while load.is_busy() and time.monotonic() < end + TIMEOUT:
        load.expire()
        await asyncio.sleep(0.05)
    if fault is not None:
        await fault
    for due in load.waiting:
        load.record(due, 0)
    for task in load.tasks:
        task.cancel()
    return load.results
