"""websockets, the WebSocket client and server for Python, over HTTP/1.1, and over HTTP/2 through haproxy."""

from __future__ import annotations

import asyncio

from checking import Failed, check, expect
from harness import Harness
from websockets.asyncio.client import connect as connect_later
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect


def ways(harness: Harness) -> dict[str, str]:
    """Returns the addresses. haproxy sends the upgrade as an extended CONNECT (RFC 8441), in plaintext and over TLS."""
    http2 = {f"over HTTP/2, {name}": f"127.0.0.1:{harness.proxies[name]}" for name in ("HTTP2", "HTTP2_TLS")}
    return {"over HTTP/1.1": harness.address, **http2}


def talk(address: str, path: str = "/socket", **options: object) -> ClientConnection:
    return connect(f"ws://{address}{path}", max_size=None, proxy=None, **options)


@check("text, 1 MiB of bytes and fragments are echoed over a WebSocket, over HTTP/1.1 and HTTP/2")
def echoes(harness: Harness) -> None:
    for way, address in ways(harness).items():
        echoes_over(way, address)


def echoes_over(way: str, address: str) -> None:
    with talk(address) as socket:
        for message in ("hello \u00e9", bytes(range(256)) * 4096):
            socket.send(message)
            expect(way, socket.recv(timeout=5) == message, True)
        socket.send(iter(["in ", "three ", "pieces"]))
        expect(way, socket.recv(timeout=5), "in three pieces")


@check("a subprotocol and compression are negotiated end to end")
def negotiates(harness: Harness) -> None:
    for way, address in ways(harness).items():
        with talk(address, subprotocols=["other", "chat"]) as socket:
            expect(way, socket.subprotocol, "chat")
            names = [extension.name for extension in socket.protocol.extensions]
            expect(way, names, ["permessage-deflate"])
            socket.send("x" * 100_000)
            expect(way, socket.recv(timeout=5), "x" * 100_000)


@check("pings are answered by the server behind the gateway")
def pings(harness: Harness) -> None:
    for way, address in ways(harness).items():
        with talk(address) as socket:
            expect(way, socket.ping().wait(5), True)


@check("the server's close code and reason reach the client")
def closes(harness: Harness) -> None:
    for way, address in ways(harness).items():
        with talk(address) as socket:
            socket.send("close")
            try:
                socket.recv(timeout=5)
            except ConnectionClosed as error:
                expect(way, (error.rcvd.code, error.rcvd.reason), (4000, "as you like"))
            else:
                raise Failed("the connection is still open")


@check("50 concurrent WebSockets get their own messages")
def many(harness: Harness) -> None:
    async def one(address: str, number: int) -> bool:
        async with connect_later(f"ws://{address}/socket", proxy=None) as socket:
            for index in range(10):
                await socket.send(f"{number} {index}")
                if await socket.recv() != f"{number} {index}":
                    return False
        return True

    async def all_of_them(address: str) -> list[bool]:
        return await asyncio.gather(*(one(address, number) for number in range(50)))

    for way, address in ways(harness).items():
        expect(way, all(asyncio.run(all_of_them(address))), True)


@check("a handshake over the limit gets 429, and a conversation is charged once")
def is_limited(harness: Harness) -> None:
    for way, address in ways(harness).items():
        name = {"x-name": harness.name()}
        for _ in range(2):
            with talk(address, "/limited/socket", additional_headers=name) as socket:
                for _ in range(20):
                    socket.send("again")
                    expect(way, socket.recv(timeout=5), "again")
        try:
            talk(address, "/limited/socket", additional_headers=name)
        except InvalidStatus as error:
            expect(way, error.response.status_code, 429)
            expect(way, "retry-after" in error.response.headers, True)
        else:
            raise Failed(f"{way}: the third handshake was accepted")
