"""Sends requests to gateways, each on a connection of its own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from process import MeasurementError

# The longest response, in seconds: a gateway may be slow with 200 streams on a busy machine.
SECONDS = 120

# The statuses of rejections: APISIX and others use 503.
REJECTED = (429, 503)


@dataclass(frozen=True)
class Ask:
    """A request: the tokens of output that the message asks for, the bound that the client names, and further text of the
    message."""

    tokens: int
    bound: int | None = None
    is_stream: bool = False
    text: str = ""

    @property
    def prompt(self) -> str:
        return f"write {self.tokens} tokens{self.text}"

    def body(self) -> bytes:
        message = {"role": "user", "content": self.prompt}
        request: dict[str, Any] = {"model": "m", "messages": [message]}
        if self.bound:
            request["max_tokens"] = self.bound
        if self.is_stream:
            request["stream"] = True
        return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode()


async def send(port: int, key: str, ask: Ask) -> bool:
    """Sends a request and reads its whole response. Returns `True` if the gateway forwarded it, `False` if it rejected it."""
    try:
        return await asyncio.wait_for(exchange(port, key, ask), SECONDS)
    except asyncio.TimeoutError:
        raise MeasurementError(f"a response did not end within {SECONDS} s") from None


async def exchange(port: int, key: str, ask: Ask) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        body = ask.body()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        response = await reader.read(-1)
    finally:
        writer.close()
    status = int(response[9:12] or b"0")
    if status != 200 and status not in REJECTED:
        raise MeasurementError(f"unexpected response: {response[:300]!r}")
    return status == 200
