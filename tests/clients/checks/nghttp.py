"""nghttp and h2load, of the nghttp2 project."""

from __future__ import annotations

import re

from checking import check, expect, output
from harness import Harness


@check("nghttp gets a response although it sends priorities")
def responses(harness: Harness) -> None:
    result = output("nghttp", "-nv", f"{harness.url}/plain")
    expect("a status of 200", ":status: 200" in result, True)
    expect("a GOAWAY of the gateway", "recv GOAWAY" in result, False)


@check("the upload of nghttp is echoed, with padding and small windows")
def uploads(harness: Harness) -> None:
    body = harness.scratch / "upload"
    body.write_bytes(b"0123456789" * 10_000)
    options = ("-w", "12", "-W", "12", "-b", "200")
    expect("the echo", output("nghttp", *options, "-d", body, f"{harness.url}/echo"), body.read_text())


@check("nghttp gets 431 for 24 KiB of fields in CONTINUATION frames")
def sends_too_many_fields(harness: Harness) -> None:
    result = output("nghttp", "-nv", "--continuation", f"{harness.url}/plain")
    expect("a status of 431", ":status: 431" in result, True)


@check("trailers pass from nghttp to the origin and back")
def sends_trailers(harness: Harness) -> None:
    body = harness.write("short", "body")
    result = output("nghttp", "-d", body, "--trailer", "x-checksum: abc", "-H", "trailer: x-checksum", f"{harness.url}/count")
    expect("trailers at the origin", result.strip(), '{"bytes":4,"trailers":{"x-checksum":"abc"}}')
    result = output("nghttp", "-nv", "-H", "te: trailers", f"{harness.url}/trailers")
    expect("trailers of the origin", "x-checksum: abc" in result, True)


@check("h2load gets 5,000 responses on 10 connections with 20 streams each")
def load_over_http2(harness: Harness) -> None:
    expect_loaded("-m", "20", f"{harness.url}/plain")


@check("h2load gets 5,000 responses over HTTP/1.1")
def load_over_http1(harness: Harness) -> None:
    expect_loaded("--h1", f"{harness.url}/plain")


def expect_loaded(*options: str, requests: int = 5000) -> None:
    """Expects that h2load gets all responses, without failures."""
    result = output("h2load", "-n", requests, "-c", "10", *options)
    responses, failures = (re.search(line, result) for line in (r"status codes: (.*)", r"\d+ failed, \d+ errored, \d+ timeout"))
    expect("the responses", responses and responses[1], f"{requests} 2xx, 0 3xx, 0 4xx, 0 5xx")
    expect("failures", failures and failures[0], "0 failed, 0 errored, 0 timeout")
