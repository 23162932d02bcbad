"""Sends requests to several instances at given times, and counts the granted ones."""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Sequence

from memory import REQUEST, is_complete
from process import MeasurementError

CONNECTIONS = 16
RESPONSE_TIMEOUT_SECONDS = 5.0
GRANTED, REJECTED = 200, 429

# A time after the start, and a function to call at this time.
Event = tuple[float, Callable[[], None]]


@dataclass(frozen=True)
class Sent:
    """A request: the times of its begin and its end, and the status of its response."""

    begin: float
    end: float
    status: int


@dataclass
class Sender:
    """Sends a request to each instance in turns, with at most one in flight on each of its connections."""

    ports: list[int]
    sent: list[Sent] = field(default_factory=list)
    begun: dict[socket.socket, tuple[int, float]] = field(default_factory=dict)
    idle: list[deque[socket.socket]] = field(default_factory=list)
    responses: dict[socket.socket, bytes] = field(default_factory=dict)
    delays: list[float] = field(default_factory=list)  # from the time of a request to its begin

    def run(self, times: list[float], start: float, events: Sequence[Event] = ()) -> list[Sent]:
        """Sends requests at these times after `start`, on the monotonic clock, and calls each event at its time. If all
        connections are busy, sends a request as soon as one is idle."""
        waiting = deque(events)
        with selectors.DefaultSelector() as selector:
            try:
                self.connect(selector)
                number = 0
                while number < len(times) or self.responses:
                    now = time.monotonic() - start
                    if waiting and waiting[0][0] <= now:
                        waiting.popleft()[1]()
                    while number < len(times) and times[number] <= now and self.send(number % len(self.ports)):
                        self.delays.append(now - times[number])
                        number += 1
                    self.wait(selector, times[number] - now if number < len(times) else None)
            finally:
                for client in list(selector.get_map().values()):
                    client.fileobj.close()  # type: ignore[union-attr]
        return self.sent

    def delay(self) -> float:
        """Returns the delay that 99 of 100 requests did not exceed, in seconds."""
        return sorted(self.delays)[len(self.delays) * 99 // 100]

    def connect(self, selector: selectors.BaseSelector) -> None:
        for index, port in enumerate(self.ports):
            self.idle.append(deque())
            for _ in range(CONNECTIONS):
                client = socket.create_connection(("127.0.0.1", port), RESPONSE_TIMEOUT_SECONDS)
                selector.register(client, selectors.EVENT_READ, index)
                self.idle[index].append(client)

    def send(self, index: int) -> bool:
        if not self.idle[index]:
            return False
        client = self.idle[index].popleft()
        self.begun[client] = index, time.monotonic()
        self.responses[client] = b""
        client.sendall(REQUEST)
        return True

    def wait(self, selector: selectors.BaseSelector, due: float | None) -> None:
        """Reads responses until the next request is due."""
        timeout = RESPONSE_TIMEOUT_SECONDS if due is None else max(0.0005, min(due, 0.01))
        ready = selector.select(timeout)
        if not ready and due is None:
            raise MeasurementError("a response did not arrive in time")
        for key, _ in ready:
            self.read(key.fileobj)  # type: ignore[arg-type]

    def read(self, client: socket.socket) -> None:
        received = client.recv(4096)
        if not received or client not in self.responses:
            raise MeasurementError("it closes connections, or sends a response without a request")
        response = self.responses[client] = self.responses[client] + received
        if not is_complete(response):
            return
        index, begin = self.begun[client]
        self.sent.append(Sent(begin, time.monotonic(), int(response[9:12])))
        del self.responses[client]
        self.idle[index].append(client)


def granted(sent: list[Sent]) -> list[tuple[float, float]]:
    """Returns the begins and the ends of granted requests."""
    return sorted((one.begin, one.end) for one in sent if one.status == GRANTED)


def fullest(spans: list[tuple[float, float]], seconds: float) -> int:
    """Returns the most requests that began and ended within a window. All of them were decided in this window, so it has at
    least this number of permits."""
    most = 0
    for first, (begin, _) in enumerate(spans):
        count = 0
        for one in spans[first:]:
            if one[0] >= begin + seconds:
                break
            count += one[1] < begin + seconds
        most = max(most, count)
    return most


def failed(sent: list[Sent]) -> int:
    return sum(one.status not in (GRANTED, REJECTED) for one in sent)

