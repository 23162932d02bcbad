"""curl, h2load, h2spec, httpx and Node.js over TLS."""

from __future__ import annotations

import ssl

import httpx
from checking import check, expect, output, run_script
from harness import Harness

from checks.h2spec import faults
from checks.nghttp import expect_loaded


def curl(harness: Harness, *arguments: object) -> str:
    return output("curl", "-sS", "--max-time", "10", "--cacert", harness.certificates.ca, *arguments)


@check("curl gets HTTP/2 by ALPN over TLS, and HTTP/1.1 on request")
def responses(harness: Harness) -> None:
    for option, version in (("--http2", "2"), ("--http1.1", "1.1")):
        for tls in (("--tlsv1.3",), ("--tlsv1.2", "--tls-max", "1.2")):
            result = curl(harness, option, *tls, "-w", "%{http_version} %{http_code}", f"{harness.tls_url}/plain")
            expect(f"{option} {tls}", result, f"hello\n{version} 200")


@check("curl reuses its TLS connection for the second request")
def keeps_alive(harness: Harness) -> None:
    for option in ("--http2", "--http1.1"):
        url = f"{harness.tls_url}/plain"
        result = curl(harness, option, "-o", "/dev/null", "-o", "/dev/null", "-w", "%{num_connects} ", url, url)
        expect(option, result.split(), ["1", "0"])


@check("8 MiB are echoed to curl over TLS")
def echoes(harness: Harness) -> None:
    sent, back = harness.scratch / "sent", harness.scratch / "back"
    sent.write_bytes(bytes(range(256)) * 32 * 1024)
    for option in ("--http2", "--http1.1"):
        curl(harness, option, "--data-binary", f"@{sent}", "-o", back, f"{harness.tls_url}/echo")
        expect(option, back.read_bytes() == sent.read_bytes(), True)


@check("the origin gets X-Forwarded-Proto: https")
def forwards_the_scheme(harness: Harness) -> None:
    result = curl(harness, f"{harness.tls_url}/request")
    expect("x-forwarded-proto", '"x-forwarded-proto":"https"' in result, True)


@check("h2load gets 5,000 responses over TLS")
def load(harness: Harness) -> None:
    expect_loaded("-m", "20", f"{harness.tls_url}/plain")


@check("h2spec finds no fault over TLS")
def finds_no_fault(harness: Harness) -> None:
    expect("its faults", faults(harness, harness.tls, "-t", "-k"), set())


@check("httpx gets HTTP/2 responses over TLS")
def httpx_over_http2(harness: Harness) -> None:
    context = ssl.create_default_context(cafile=str(harness.certificates.ca))
    with httpx.Client(base_url=harness.tls_url, http2=True, verify=context) as client:
        for _ in range(20):
            response = client.post("/echo", content=b"x" * 100_000)
            expect("the response", (response.http_version, len(response.content)), ("HTTP/2", 100_000))


@check("the HTTP/2 checks of Node.js over TLS finish")
def node_over_http2(harness: Harness) -> None:
    run_script(harness, "node_http2.mjs", harness.tls_url, harness.name(), harness.certificates.ca)
