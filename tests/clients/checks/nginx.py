"""nginx as an upstream over TLS."""

from __future__ import annotations

import signal

from checking import check, expect, output
from stage import Stage

from checks.nghttp import expect_loaded


def ask(stage: Stage, path: str, *options: object) -> str:
    return output("curl", "-sS", "--max-time", "10", *options, f"{stage.url}{path}")


@check("nginx is asked by HTTP/2 where ALPN chooses it, by the name and with the certificate of the rule file")
def by_http2(stage: Stage) -> None:
    told = ask(stage, "/nginx/connection")
    expect("the connection", told, "HTTP/2.0 TLSv1.3 localhost SUCCESS CN=client,O=tests")


@check("nginx is asked by HTTP/1.1 where the rule file says so")
def by_http1(stage: Stage) -> None:
    told = ask(stage, "/nginx-http1/connection")
    expect("the connection", told, "HTTP/1.1 TLSv1.3 localhost NONE ")


@check("nginx with a certificate of a stranger, or of another name, is a 502")
def is_verified(stage: Stage) -> None:
    for path in ("/nginx-of-strangers/connection", "/nginx-of-another-name/connection"):
        expect(path, ask(stage, path, "-o", "/dev/null", "-w", "%{http_code}"), "502")


@check("a session with nginx is resumed by the next connection of a worker")
def is_resumed(stage: Stage) -> None:
    told = [ask(stage, "/nginx-http1/session") for _ in range(3)]
    # There are two workers: of three connections one is not the first of its worker.
    expect("one is resumed", "r" in [words.split()[0] for words in told], True)


@check("nginx is shown another certificate as soon as the gateway is told of it, and by no session of before")
def is_shown_another(stage: Stage) -> None:
    path = "/nginx-renewed/session"
    for name in ("shown", "one", "another"):
        stage.certificates.make("shown", "DNS:shown.test", subject=f"/O=tests/CN={name}")
        stage.gateway.process.send_signal(signal.SIGHUP)
        while ask(stage, path).split()[1:] != [f"CN={name},O=tests"]:
            pass
        told = [ask(stage, path) for _ in range(3)]
        expect("from then on", {words.split()[1] for words in told}, {f"CN={name},O=tests"})


@check("nginx ends its connections after every 50 requests, and all of 2,000 are answered, over either protocol")
def goes_away(stage: Stage) -> None:
    for upstream in ("nginx", "nginx-http1"):
        expect_loaded("-m", "5", f"{stage.url}/{upstream}/connection", requests=2000)


@check("20 MiB come from nginx whole, by either protocol")
def downloads(stage: Stage) -> None:
    file = stage.scratch / "file"
    file.write_bytes(bytes(range(256)) * 80 * 1024)
    for upstream in ("nginx", "nginx-http1"):
        back = stage.scratch / "back"
        ask(stage, f"/{upstream}/file", "-o", back)
        expect(upstream, back.read_bytes() == file.read_bytes(), True)
