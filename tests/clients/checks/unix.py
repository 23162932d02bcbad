"""curl and node over Unix sockets."""

from __future__ import annotations

from checking import check, expect, output
from stage import Stage


@check("curl is answered on a Unix socket, over both versions")
def answers(stage: Stage) -> None:
    for option, version in (("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")):
        socket = ("--unix-socket", stage.scratch / "gateway.sock")
        told = output("curl", "-sS", option, *socket, "-w", "%{http_version} %{http_code}", "http://localhost/plain")
        expect(option, told, f"hello\n{version} 200")


@check("node is asked on a Unix socket")
def asks(stage: Stage) -> None:
    body = stage.scratch / "sent"
    body.write_bytes(bytes(range(256)) * 4096)
    back = stage.scratch / "back"
    output("curl", "-sS", "--data-binary", f"@{body}", "-o", back, f"{stage.url}/unix/echo")
    expect("the echo", back.read_bytes() == body.read_bytes(), True)
