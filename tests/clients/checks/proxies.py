"""haproxy in front of the gateway, and curl that speaks as a proxy does: the PROXY protocol."""

from __future__ import annotations

import json

from checking import check, expect, output
from stage import Stage

# What the gateway trusts, and addresses of clients that nothing else uses.
PROXY = ("--interface", "127.0.0.2")
CLIENTS = {"V1": "127.0.0.11", "V2": "127.0.0.12"}


def curl(stage: Stage, *arguments: object, codes: tuple[int, ...] = (0,)) -> str:
    return output("curl", "-sS", "--max-time", "10", "--cacert", stage.certificates.ca, *arguments, codes=codes)


def through(stage: Stage, proxy: str, path: str) -> str:
    """A URL of the gateway behind this proxy; what follows the second lets TLS pass."""
    return f"{'https' if proxy == 'V2' else 'http'}://localhost:{stage.proxies[proxy]}{path}"


@check("the client is whom haproxy tells of, by version 1 in clear and by version 2 before TLS")
def tells_of_clients(stage: Stage) -> None:
    for proxy, client in CLIENTS.items():
        for version in ("--http1.1", "--http2" if proxy == "V2" else "--http2-prior-knowledge"):
            told = curl(stage, version, "-4", "--interface", client, through(stage, proxy, "/request"))
            expect(f"{proxy} {version}", json.loads(told)["headers"]["x-forwarded-for"], client)


@check("each client behind haproxy has a bucket of its own")
def has_buckets_of_clients(stage: Stage) -> None:
    for proxy, client in CLIENTS.items():
        ask = ("-4", "-o", "/dev/null", "-w", "%{http_code}", through(stage, proxy, "/by-address/plain"))
        told = [curl(stage, "--interface", client, *ask) for _ in range(3)]
        expect(f"of one client of {proxy}", told, ["200", "200", "429"])
        expect("of another", curl(stage, "--interface", f"{client}1", *ask), "200")


@check("20 MiB pass haproxy and its header, up and down, whole")
def passes_bytes(stage: Stage) -> None:
    sent, back = stage.scratch / "sent", stage.scratch / "back"
    sent.write_bytes(bytes(range(256)) * 80 * 1024)
    for proxy in CLIENTS:
        curl(stage, "--data-binary", f"@{sent}", "-o", back, through(stage, proxy, "/echo"))
        expect(proxy, back.read_bytes() == sent.read_bytes(), True)


@check("haproxy at an address that is not trusted is refused")
def refuses_strangers(stage: Stage) -> None:
    told = curl(stage, through(stage, "STRANGER", "/plain"), codes=(52, 56))
    expect("it complains", told.startswith("curl: ("), True)


@check("curl --haproxy-protocol is answered at the address that is trusted, in clear and over TLS, and at no other")
def trusts_an_address(stage: Stage) -> None:
    port = stage.proxied_tls.rpartition(":")[2]
    for url in (f"http://{stage.proxied}/plain", f"https://localhost:{port}/plain"):
        ask = ("-4", "--haproxy-protocol", url)
        expect(url, curl(stage, *PROXY, *ask), "hello\n")
        curl(stage, *ask, codes=(35, 52, 55, 56))
        curl(stage, "--interface", "127.0.0.3", *ask, codes=(35, 52, 55, 56))


@check("a proxy that says nothing of its client is refused, and so is one that does where nobody asks for it")
def needs_a_header(stage: Stage) -> None:
    curl(stage, *PROXY, f"http://{stage.proxied}/plain", codes=(52, 56))
    ask = ("--haproxy-protocol", "-o", "/dev/null", "-w", "%{http_code}", f"http://{stage.address}/plain")
    expect("on another listener", curl(stage, *PROXY, *ask), "400")
