"""nginx as an upstream over TLS."""

from __future__ import annotations

import signal

from checking import check, expect, output
from harness import Harness

from checks.nghttp import expect_loaded


def ask(harness: Harness, path: str, *options: object) -> str:
    return output("curl", "-sS", "--max-time", "10", *options, f"{harness.url}{path}")


@check("the gateway uses HTTP/2 with nginx by ALPN, with the server name and the certificate of the rule file")
def by_http2(harness: Harness) -> None:
    result = ask(harness, "/nginx/connection")
    expect("the connection", result, "HTTP/2.0 TLSv1.3 localhost SUCCESS CN=client,O=tests")


@check("the gateway uses HTTP/1.1 with nginx if the rule file requires it")
def by_http1(harness: Harness) -> None:
    result = ask(harness, "/nginx-http1/connection")
    expect("the connection", result, "HTTP/1.1 TLSv1.3 localhost NONE ")


@check("nginx with a certificate of another authority or another name is a 502")
def is_verified(harness: Harness) -> None:
    for path in ("/nginx-untrusted/connection", "/nginx-other-name/connection"):
        expect(path, ask(harness, path, "-o", "/dev/null", "-w", "%{http_code}"), "502")


@check("the next connection of a worker to nginx resumes the TLS session")
def is_resumed(harness: Harness) -> None:
    result = [ask(harness, "/nginx-http1/session") for _ in range(3)]
    # With two workers, one of three connections is not the first one of its worker.
    expect("resumed sessions", "r" in [words.split()[0] for words in result], True)


@check("a reloaded client certificate is presented to nginx at once, and by no old session")
def certificate_reload(harness: Harness) -> None:
    path = "/nginx-reloaded/session"
    for name in ("first", "second", "third"):
        harness.certificates.make("reloaded", "DNS:reloaded.test", subject=f"/O=tests/CN={name}")
        harness.gateway.process.send_signal(signal.SIGHUP)
        while ask(harness, path).split()[1:] != [f"CN={name},O=tests"]:
            pass
        result = [ask(harness, path) for _ in range(3)]
        expect("after the reload", {words.split()[1] for words in result}, {f"CN={name},O=tests"})


@check("nginx closes each connection after 50 requests, and all of 2,000 succeed, over both protocols")
def connections_close(harness: Harness) -> None:
    for upstream in ("nginx", "nginx-http1"):
        expect_loaded("-m", "5", f"{harness.url}/{upstream}/connection", requests=2000)


@check("20 MiB arrive complete from nginx, over both protocols")
def downloads(harness: Harness) -> None:
    file = harness.scratch / "file"
    file.write_bytes(bytes(range(256)) * 80 * 1024)
    for upstream in ("nginx", "nginx-http1"):
        back = harness.scratch / "back"
        ask(harness, f"/{upstream}/file", "-o", back)
        expect(upstream, back.read_bytes() == file.read_bytes(), True)
