"""One upstream process: `upstream_server.py ADDRESS PORT`. Answers every request with 100 bytes, until a signal changes
that: SIGUSR1 makes it answer 500, SIGUSR2 makes it wait a second before each response."""

from __future__ import annotations

import asyncio
import signal
import sys

BODY = b"0123456789" * 10
SLOW_SECONDS = 1.0

status = b"200 OK"
delay = 0.0


class Server(asyncio.Protocol):
    """A connection of the gateway. Requests have no body."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            _, _, self.received = self.received.partition(b"\r\n\r\n")
            if delay:
                asyncio.get_running_loop().call_later(delay, self.respond)
            else:
                self.respond()

    def respond(self) -> None:
        self.transport.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(BODY), BODY))


def fail() -> None:
    global status
    status = b"500 Internal Server Error"


def slow_down() -> None:
    global delay
    delay = SLOW_SECONDS


async def main(address: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, fail)
    loop.add_signal_handler(signal.SIGUSR2, slow_down)
    server = await loop.create_server(Server, address, port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
