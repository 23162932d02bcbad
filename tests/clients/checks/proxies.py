"""The PROXY protocol, with haproxy in front of the gateway and with curl."""

from __future__ import annotations

import json

from checking import check, expect, output
from harness import Harness

# The trusted proxy, and client addresses that no other check uses.
PROXY = ("--interface", "127.0.0.2")
CLIENTS = {"V1": "127.0.0.11", "V2": "127.0.0.12"}


def curl(harness: Harness, *arguments: object, codes: tuple[int, ...] = (0,)) -> str:
    return output("curl", "-sS", "--max-time", "10", "--cacert", harness.certificates.ca, *arguments, codes=codes)


def through(harness: Harness, proxy: str, path: str) -> str:
    """Returns a URL of the gateway behind this proxy. V2 passes TLS through."""
    return f"{'https' if proxy == 'V2' else 'http'}://localhost:{harness.proxies[proxy]}{path}"


@check("the client address of haproxy reaches the origin, with version 1 in plaintext and version 2 before TLS")
def client_addresses(harness: Harness) -> None:
    for proxy, client in CLIENTS.items():
        for version in ("--http1.1", "--http2" if proxy == "V2" else "--http2-prior-knowledge"):
            result = curl(harness, version, "-4", "--interface", client, through(harness, proxy, "/request"))
            expect(f"{proxy} {version}", json.loads(result)["headers"]["x-forwarded-for"], client)


@check("each client behind haproxy has a separate bucket")
def separate_buckets(harness: Harness) -> None:
    for proxy, client in CLIENTS.items():
        ask = ("-4", "-o", "/dev/null", "-w", "%{http_code}", through(harness, proxy, "/by-address/plain"))
        result = [curl(harness, "--interface", client, *ask) for _ in range(3)]
        expect(f"first client of {proxy}", result, ["200", "200", "429"])
        expect("second client", curl(harness, "--interface", f"{client}1", *ask), "200")


@check("20 MiB pass through haproxy unchanged in both directions")
def passes_bytes(harness: Harness) -> None:
    sent, back = harness.scratch / "sent", harness.scratch / "back"
    sent.write_bytes(bytes(range(256)) * 80 * 1024)
    for proxy in CLIENTS:
        curl(harness, "--data-binary", f"@{sent}", "-o", back, through(harness, proxy, "/echo"))
        expect(proxy, back.read_bytes() == sent.read_bytes(), True)


@check("haproxy at an untrusted address is rejected")
def rejects_untrusted_proxies(harness: Harness) -> None:
    result = curl(harness, through(harness, "UNTRUSTED", "/plain"), codes=(52, 56))
    expect("error message", result.startswith("curl: ("), True)


@check("curl --haproxy-protocol is accepted from the trusted address only, in plaintext and over TLS")
def trusts_an_address(harness: Harness) -> None:
    port = harness.proxied_tls.rpartition(":")[2]
    for url in (f"http://{harness.proxied}/plain", f"https://localhost:{port}/plain"):
        ask = ("-4", "--haproxy-protocol", url)
        expect(url, curl(harness, *PROXY, *ask), "hello\n")
        curl(harness, *ask, codes=(35, 52, 55, 56))
        curl(harness, "--interface", "127.0.0.3", *ask, codes=(35, 52, 55, 56))


@check("a missing PROXY header is rejected, and so is an unexpected one")
def needs_a_header(harness: Harness) -> None:
    curl(harness, *PROXY, f"http://{harness.proxied}/plain", codes=(52, 56))
    ask = ("--haproxy-protocol", "-o", "/dev/null", "-w", "%{http_code}", f"http://{harness.address}/plain")
    expect("on another listener", curl(harness, *PROXY, *ask), "400")
