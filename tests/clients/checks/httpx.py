"""httpx, over HTTP/1.1 and HTTP/2 in plaintext."""

from __future__ import annotations

import asyncio
from typing import AsyncIterator

import httpx
from checking import check, expect
from harness import Harness

VERSIONS = {"HTTP/1.1": {"http1": True, "http2": False}, "HTTP/2": {"http1": False, "http2": True}}


@check("httpx gets responses over both versions, on reused connections")
def responses(harness: Harness) -> None:
    for version, how in VERSIONS.items():
        with httpx.Client(base_url=harness.url, **how) as client:
            for _ in range(50):
                response = client.get("/plain")
                expect(version, (response.http_version, response.status_code, response.text), (version, 200, "hello\n"))


@check("httpx gets responses to 100 concurrent requests over both versions")
def concurrent_requests(harness: Harness) -> None:
    async def ask(how: dict[str, bool]) -> list[int]:
        async with httpx.AsyncClient(base_url=harness.url, timeout=10, **how) as client:
            responses = await asyncio.gather(*(client.post("/echo", content=b"x" * 1000) for _ in range(100)))
            return [len(response.content) for response in responses]

    for version, how in VERSIONS.items():
        expect(version, asyncio.run(ask(how)), [1000] * 100)


@check("an upload of unknown length by httpx arrives complete")
def streams(harness: Harness) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    async def ask(how: dict[str, bool]) -> str:
        async with httpx.AsyncClient(base_url=harness.url, **how) as client:
            return (await client.post("/count", content=pieces())).text

    for version, how in VERSIONS.items():
        expect(version, asyncio.run(ask(how)), '{"bytes":1000000,"trailers":{}}')


@check("httpx receives the first server-sent event before the second exists")
def server_sent_events(harness: Harness) -> None:
    for version, how in VERSIONS.items():
        with httpx.Client(base_url=harness.url, **how) as client, client.stream("GET", "/events") as response:
            lines = response.iter_lines()
            expect(version, next(lines), "data: first")
            httpx.get(f"{harness.url}/more")
            expect(version, [line for line in lines if line], ["data: last"])


@check("httpx gets 429 with Retry-After")
def is_rejected(harness: Harness) -> None:
    for version, how in VERSIONS.items():
        with httpx.Client(base_url=harness.url, headers={"x-name": harness.name()}, **how) as client:
            responses = [client.get("/limited/plain") for _ in range(3)]
            expect(version, [response.status_code for response in responses], [200, 200, 429])
            expect(version, 3590 <= int(responses[2].headers["retry-after"]) <= 3600, True)
            expect(version, responses[2].json()["violated-policies"], ["per-name"])


@check("a gRPC-Web call passes unchanged, and is rejected with gRPC fields and its own content type")
def calls_grpc_web(harness: Harness) -> None:
    for version, how in VERSIONS.items():
        fields = {"content-type": "application/grpc-web+proto", "x-name": harness.name()}
        with httpx.Client(base_url=harness.url, headers=fields, **how) as client:
            message = bytes([0, 0, 0, 0, 1, 7, 0x80, 0, 0, 0, 0])
            responses = [client.post("/limited/echo", content=message) for _ in range(3)]
        expect(version, [response.content for response in responses], [message, message, b""])
        expect(version, responses[0].headers.get("grpc-status"), None)
        result = [responses[2].headers[name] for name in ("content-type", "grpc-status")]
        expect(version, (responses[2].status_code, result), (200, ["application/grpc-web", "8"]))
