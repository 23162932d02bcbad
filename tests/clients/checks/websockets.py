"""websockets, client and server of WebSocket for Python."""

from __future__ import annotations

import asyncio

from checking import Failed, check, expect
from stage import Stage
from websockets.asyncio.client import connect as connect_later
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect


def talk(stage: Stage, path: str = "/socket", **options: object) -> ClientConnection:
    return connect(f"ws://{stage.address}{path}", max_size=None, proxy=None, **options)


@check("a text, 1 MiB of bytes and fragments come back over a WebSocket")
def echoes(stage: Stage) -> None:
    with talk(stage) as socket:
        for message in ("hello \u00e9", bytes(range(256)) * 4096):
            socket.send(message)
            expect("the echo", socket.recv(timeout=5) == message, True)
        socket.send(iter(["in ", "three ", "pieces"]))
        expect("the echo", socket.recv(timeout=5), "in three pieces")


@check("a subprotocol is agreed on, and compression, which the gateway does not look into")
def negotiates(stage: Stage) -> None:
    with talk(stage, subprotocols=["other", "chat"]) as socket:
        expect("the subprotocol", socket.subprotocol, "chat")
        names = [extension.name for extension in socket.protocol.extensions]
        expect("the extension", names, ["permessage-deflate"])
        socket.send("x" * 100_000)
        expect("the echo", socket.recv(timeout=5), "x" * 100_000)


@check("pings are answered from behind the gateway")
def pings(stage: Stage) -> None:
    with talk(stage) as socket:
        expect("a pong", socket.ping().wait(5), True)


@check("the server's close, with its code and reason, reaches the client")
def closes(stage: Stage) -> None:
    with talk(stage) as socket:
        socket.send("close")
        try:
            socket.recv(timeout=5)
        except ConnectionClosed as error:
            expect("the close", (error.rcvd.code, error.rcvd.reason), (4000, "as you like"))
        else:
            raise Failed("it is still open")


@check("50 WebSockets at once each have their own answers")
def many(stage: Stage) -> None:
    async def one(number: int) -> bool:
        async with connect_later(f"ws://{stage.address}/socket", proxy=None) as socket:
            for turn in range(10):
                await socket.send(f"{number} {turn}")
                if await socket.recv() != f"{number} {turn}":
                    return False
        return True

    async def all_of_them() -> list[bool]:
        return await asyncio.gather(*(one(number) for number in range(50)))

    expect("they have", all(asyncio.run(all_of_them())), True)


@check("a handshake that a limit refuses is a 429, and is charged once for the whole conversation")
def is_limited(stage: Stage) -> None:
    name = {"x-name": stage.name()}
    for _ in range(2):
        with talk(stage, "/limited/socket", additional_headers=name) as socket:
            for _ in range(20):
                socket.send("again")
                expect("the echo", socket.recv(timeout=5), "again")
    try:
        talk(stage, "/limited/socket", additional_headers=name)
    except InvalidStatus as error:
        expect("the status", error.response.status_code, 429)
        expect("retry-after", "retry-after" in error.response.headers, True)
    else:
        raise Failed("a third one was let in")
