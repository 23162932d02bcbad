"""curl and node over Unix sockets."""

from __future__ import annotations

from checking import check, expect, output
from harness import Harness


@check("curl gets responses on a Unix socket, over both versions")
def responses(harness: Harness) -> None:
    for option, version in (("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")):
        socket = ("--unix-socket", harness.scratch / "gateway.sock")
        result = output("curl", "-sS", option, *socket, "-w", "%{http_version} %{http_code}", "http://localhost/plain")
        expect(option, result, f"hello\n{version} 200")


@check("the gateway forwards to Node.js on a Unix socket")
def asks(harness: Harness) -> None:
    body = harness.scratch / "sent"
    body.write_bytes(bytes(range(256)) * 4096)
    back = harness.scratch / "back"
    output("curl", "-sS", "--data-binary", f"@{body}", "-o", back, f"{harness.url}/unix/echo")
    expect("the echo", back.read_bytes() == body.read_bytes(), True)
