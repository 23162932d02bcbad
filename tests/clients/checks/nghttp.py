"""nghttp and h2load, of the nghttp2 project."""

from __future__ import annotations

import re

from checking import check, expect, output
from stage import Stage


@check("nghttp is answered, with the priorities of old that it sends")
def answers(stage: Stage) -> None:
    told = output("nghttp", "-nv", f"{stage.url}/plain")
    expect("a status of 200", ":status: 200" in told, True)
    expect("no GOAWAY but its own", "recv GOAWAY" in told, False)


@check("nghttp's upload is echoed, with padding and small windows")
def uploads(stage: Stage) -> None:
    body = stage.scratch / "upload"
    body.write_bytes(b"0123456789" * 10_000)
    options = ("-w", "12", "-W", "12", "-b", "200")
    expect("the echo", output("nghttp", *options, "-d", body, f"{stage.url}/echo"), body.read_text())


@check("nghttp that sends 24 KiB of fields in CONTINUATION frames is told by 431 that these are too many")
def sends_too_many_fields(stage: Stage) -> None:
    told = output("nghttp", "-nv", "--continuation", f"{stage.url}/plain")
    expect("a status of 431", ":status: 431" in told, True)


@check("nghttp's trailers reach the origin, and the origin's reach nghttp")
def sends_trailers(stage: Stage) -> None:
    body = stage.write("short", "body")
    told = output("nghttp", "-d", body, "--trailer", "x-checksum: abc", "-H", "trailer: x-checksum", f"{stage.url}/count")
    expect("what the origin had", told.strip(), '{"bytes":4,"trailers":{"x-checksum":"abc"}}')
    told = output("nghttp", "-nv", "-H", "te: trailers", f"{stage.url}/trailers")
    expect("the origin's", "x-checksum: abc" in told, True)


@check("h2load has 5,000 requests answered on 10 connections with 20 streams each")
def bears_a_load_of_http2(stage: Stage) -> None:
    expect_loaded("-m", "20", f"{stage.url}/plain")


@check("h2load has 5,000 requests answered over HTTP/1.1")
def bears_a_load_of_http1(stage: Stage) -> None:
    expect_loaded("--h1", f"{stage.url}/plain")


def expect_loaded(*options: str, requests: int = 5000) -> None:
    """h2load has all it asks for answered."""
    told = output("h2load", "-n", requests, "-c", "10", *options)
    answers, failures = (re.search(line, told) for line in (r"status codes: (.*)", r"\d+ failed, \d+ errored, \d+ timeout"))
    expect("the answers", answers and answers[1], f"{requests} 2xx, 0 3xx, 0 4xx, 0 5xx")
    expect("failures", failures and failures[0], "0 failed, 0 errored, 0 timeout")
