"""httpx, over HTTP/1.1 and HTTP/2 in clear."""

from __future__ import annotations

import asyncio
from typing import AsyncIterator

import httpx
from checking import check, expect
from stage import Stage

VERSIONS = {"HTTP/1.1": {"http1": True, "http2": False}, "HTTP/2": {"http1": False, "http2": True}}


@check("httpx is answered over both versions, on kept connections")
def answers(stage: Stage) -> None:
    for version, how in VERSIONS.items():
        with httpx.Client(base_url=stage.url, **how) as client:
            for _ in range(50):
                answer = client.get("/plain")
                expect(version, (answer.http_version, answer.status_code, answer.text), (version, 200, "hello\n"))


@check("httpx has 100 requests at once answered over both versions")
def answers_many(stage: Stage) -> None:
    async def ask(how: dict[str, bool]) -> list[int]:
        async with httpx.AsyncClient(base_url=stage.url, timeout=10, **how) as client:
            answers = await asyncio.gather(*(client.post("/echo", content=b"x" * 1000) for _ in range(100)))
            return [len(answer.content) for answer in answers]

    for version, how in VERSIONS.items():
        expect(version, asyncio.run(ask(how)), [1000] * 100)


@check("httpx's upload of unknown length arrives whole")
def streams(stage: Stage) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    async def ask(how: dict[str, bool]) -> str:
        async with httpx.AsyncClient(base_url=stage.url, **how) as client:
            return (await client.post("/count", content=pieces())).text

    for version, how in VERSIONS.items():
        expect(version, asyncio.run(ask(how)), '{"bytes":1000000,"trailers":{}}')


@check("httpx sees the first of the server's events before there is a second")
def sees_events(stage: Stage) -> None:
    for version, how in VERSIONS.items():
        with httpx.Client(base_url=stage.url, **how) as client, client.stream("GET", "/events") as answer:
            lines = answer.iter_lines()
            expect(version, next(lines), "data: first")
            httpx.get(f"{stage.url}/more")
            expect(version, [line for line in lines if line], ["data: last"])


@check("httpx is refused with 429, and told for how long")
def is_refused(stage: Stage) -> None:
    for version, how in VERSIONS.items():
        with httpx.Client(base_url=stage.url, headers={"x-name": stage.name()}, **how) as client:
            answers = [client.get("/limited/plain") for _ in range(3)]
            expect(version, [answer.status_code for answer in answers], [200, 200, 429])
            expect(version, 3590 <= int(answers[2].headers["retry-after"]) <= 3600, True)
            expect(version, answers[2].json()["violated-policies"], ["per-name"])


@check("a call of gRPC-Web passes as it is, and is refused by the fields of gRPC with its own content type")
def calls_grpc_web(stage: Stage) -> None:
    for version, how in VERSIONS.items():
        fields = {"content-type": "application/grpc-web+proto", "x-name": stage.name()}
        with httpx.Client(base_url=stage.url, headers=fields, **how) as client:
            message = bytes([0, 0, 0, 0, 1, 7, 0x80, 0, 0, 0, 0])
            answers = [client.post("/limited/echo", content=message) for _ in range(3)]
        expect(version, [answer.content for answer in answers], [message, message, b""])
        expect(version, answers[0].headers.get("grpc-status"), None)
        told = [answers[2].headers[name] for name in ("content-type", "grpc-status")]
        expect(version, (answers[2].status_code, told), (200, ["application/grpc-web", "8"]))
