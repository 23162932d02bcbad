"""The upstream: a language model with OpenAI's API, which counts the tokens that it sends.

It is the independent checker: its count does not depend on what a gateway reads or charges.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, AsyncIterator

# The tokens of an input in ASCII.
INPUT = 8

# The tokens of an event of a stream.
EVENT = 10


@dataclass
class Model:
    """The upstream. It obeys the bound of a request, as models do. While the gate is closed, it sends nothing of its
    outputs, so that all requests are in flight together."""

    port: int = 0
    sent: int = 0
    begun: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self.serve(reader, writer))
        self.connections[task] = writer
        task.add_done_callback(self.connections.pop)

    async def close(self) -> None:
        """Closes all connections, and waits for their ends."""
        self.gate.set()
        for writer in self.connections.values():
            writer.close()
        await asyncio.gather(*self.connections)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a connection until it ends."""
        try:
            while body := await read_body(reader):
                await self.respond(json.loads(body), writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the gateway has closed the connection
        finally:
            writer.close()

    async def respond(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        prompt = str(request["messages"][-1]["content"])
        output, tokens = min(wanted(prompt), bound(request)), input_tokens(prompt)
        self.begun += 1
        self.sent += tokens
        if request.get("stream"):
            await self.stream(request, usage(tokens, output), writer)
            return
        await self.gate.wait()
        self.sent += output
        body = json.dumps({**COMPLETION, "choices": [choice("message", output)], "usage": usage(tokens, output)}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    async def stream(self, request: dict[str, Any], used: dict[str, int], writer: asyncio.StreamWriter) -> None:
        output = used["completion_tokens"]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        await self.gate.wait()
        for start in range(0, output, EVENT):
            tokens = min(EVENT, output - start)
            self.sent += tokens
            writer.write(event({**CHUNK, "choices": [choice("delta", tokens)]}))
            await writer.drain()
        writer.write(event({**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        if (request.get("stream_options") or {}).get("include_usage"):
            writer.write(event({**CHUNK, "choices": [], "usage": used}))
        writer.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        await writer.drain()


COMPLETION = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
CHUNK = {**COMPLETION, "object": "chat.completion.chunk"}


@asynccontextmanager
async def start_model(is_open: bool) -> AsyncIterator[Model]:
    """Starts a model with an open or a closed gate."""
    model = Model()
    server = await asyncio.start_server(model.accept, "127.0.0.1", 0)
    model.port = server.sockets[0].getsockname()[1]
    if is_open:
        model.gate.set()
    try:
        yield model
    finally:
        server.close()
        await model.close()


async def read_body(reader: asyncio.StreamReader) -> bytes:
    """Returns the body of the next request, or nothing at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return await reader.readexactly(int(length[1])) if length else b""


def input_tokens(prompt: str) -> int:
    """Returns the tokens of the input: of characters that are not ASCII, one for each byte. Tokenizers do so with scripts
    that they have not learned."""
    return INPUT + sum(len(letter.encode()) for letter in prompt if not letter.isascii())


def wanted(prompt: str) -> int:
    """Returns the tokens that a message asks for."""
    number = re.search(r"\d+", prompt)
    return int(number[0]) if number else 0


def bound(request: dict[str, Any]) -> int:
    return int(request.get("max_completion_tokens") or request.get("max_tokens") or 1_000_000)


def choice(member: str, tokens: int) -> dict[str, Any]:
    text: dict[str, Any] = {"role": "assistant", "content": "a " * tokens}
    return {"index": 0, member: text, "finish_reason": "stop" if member == "message" else None}


def usage(tokens: int, output: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "completion_tokens": output, "total_tokens": tokens + output}


def event(data: dict[str, Any]) -> bytes:
    return chunk(f"data: {json.dumps(data)}\n\n".encode())


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
