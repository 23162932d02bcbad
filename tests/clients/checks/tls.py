"""curl, h2load, h2spec, httpx and node over TLS."""

from __future__ import annotations

import ssl

import httpx
from checking import check, expect, output, run_script
from stage import Stage

from checks.h2spec import faults
from checks.nghttp import expect_loaded


def curl(stage: Stage, *arguments: object) -> str:
    return output("curl", "-sS", "--max-time", "10", "--cacert", stage.certificates.ca, *arguments)


@check("curl is answered over TLS, by HTTP/2 as it likes, and by HTTP/1.1 if it asks for that")
def answers(stage: Stage) -> None:
    for option, version in (("--http2", "2"), ("--http1.1", "1.1")):
        for tls in (("--tlsv1.3",), ("--tlsv1.2", "--tls-max", "1.2")):
            told = curl(stage, option, *tls, "-w", "%{http_version} %{http_code}", f"{stage.tls_url}/plain")
            expect(f"{option} {tls}", told, f"hello\n{version} 200")


@check("curl's second request goes over the connection of its first, over TLS")
def keeps_alive(stage: Stage) -> None:
    for option in ("--http2", "--http1.1"):
        url = f"{stage.tls_url}/plain"
        told = curl(stage, option, "-o", "/dev/null", "-o", "/dev/null", "-w", "%{num_connects} ", url, url)
        expect(option, told.split(), ["1", "0"])


@check("curl has 8 MiB echoed over TLS")
def echoes(stage: Stage) -> None:
    sent, back = stage.scratch / "sent", stage.scratch / "back"
    sent.write_bytes(bytes(range(256)) * 32 * 1024)
    for option in ("--http2", "--http1.1"):
        curl(stage, option, "--data-binary", f"@{sent}", "-o", back, f"{stage.tls_url}/echo")
        expect(option, back.read_bytes() == sent.read_bytes(), True)


@check("the origin is told that the client spoke https")
def tells_the_scheme(stage: Stage) -> None:
    told = curl(stage, f"{stage.tls_url}/request")
    expect("x-forwarded-proto", '"x-forwarded-proto":"https"' in told, True)


@check("h2load has 5,000 requests answered over TLS")
def bears_a_load(stage: Stage) -> None:
    expect_loaded("-m", "20", f"{stage.tls_url}/plain")


@check("h2spec finds no fault over TLS")
def finds_no_fault(stage: Stage) -> None:
    expect("its faults", faults(stage, stage.tls, "-t", "-k"), set())


@check("httpx is answered by HTTP/2 over TLS")
def answers_httpx(stage: Stage) -> None:
    context = ssl.create_default_context(cafile=str(stage.certificates.ca))
    with httpx.Client(base_url=stage.tls_url, http2=True, verify=context) as client:
        for _ in range(20):
            answer = client.post("/echo", content=b"x" * 100_000)
            expect("the answer", (answer.http_version, len(answer.content)), ("HTTP/2", 100_000))


@check("node's checks of HTTP/2 over TLS end")
def answers_node(stage: Stage) -> None:
    run_script(stage, "node_http2.mjs", stage.tls_url, stage.name(), stage.certificates.ca)
