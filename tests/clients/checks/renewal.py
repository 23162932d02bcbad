"""Handovers of a gateway and replacements of its certificate, under load over TLS by wrk, Node.js and grpcio."""

from __future__ import annotations

import signal
from pathlib import Path

from checking import check, expect
from gateway import Gateway
from load import Load
from harness import Harness

from checks.openssl import s_client

NAMES = ("DNS:localhost", "IP:127.0.0.1")


def start(harness: Harness, *arguments: object, listen: str = "127.0.0.1:0", admin: str = "127.0.0.1:0") -> Gateway:
    values = {"ORIGIN": harness.origin, "GRPC": harness.grpc.port, "FOLDER": harness.scratch}
    return harness.start_gateway(harness.folder / "renewed.yaml", *arguments, LISTEN=listen, ADMIN=admin, **values)


@check("20 gateways take over from each other under load over TLS, and no request fails", timeout=120)
def handover(harness: Harness) -> None:
    replace_files(harness, *harness.certificates.make("renewed-once", *NAMES))
    arguments = ("--handover", harness.scratch / "handover.sock", "--drain-timeout", 10)
    gateway = start(harness, *arguments)
    listen, admin = gateway.addresses[0], gateway.admin
    with Load(harness, listen) as load:
        for _ in range(20):
            load.wait_for_progress()
            before, gateway = gateway, start(harness, *arguments, listen=listen, admin=admin)
            code, log = before.wait()
            expect("the exit of the predecessor", (code, "successor serves" in log), (0, True))
        load.wait_for_progress()
        print(f"          {load.end()}")


@check("a certificate is replaced 50 times under load, and no handshake and no request fails", timeout=120)
def certificate_replacement(harness: Harness) -> None:
    renewed = [harness.certificates.make(f"renewed-{number}", *NAMES) for number in range(51)]
    replace_files(harness, *renewed[0])
    gateway = start(harness)
    with Load(harness, gateway.addresses[0]) as load:
        for certificate, key in renewed[1:]:
            text = certificate.read_text()
            replace_files(harness, certificate, key)
            gateway.process.send_signal(signal.SIGHUP)
            while text not in presented_certificate(harness, gateway):
                pass
            load.wait_for_progress()
        print(f"          {load.end()}")


def replace_files(harness: Harness, certificate: Path, key: Path) -> None:
    """Replaces the files one by one, so that they do not match for a moment."""
    certificate.rename(harness.scratch / "renewed.pem")
    key.rename(harness.scratch / "renewed.key")


def presented_certificate(harness: Harness, gateway: Gateway) -> str:
    """Returns the output of openssl, with the presented certificate. Expects that it is verified, and a response."""
    result = s_client(harness, "-servername", "localhost", "-verify_return_error", address=gateway.addresses[0])
    expect("verified, with a response", "Verify return code: 0 (ok)" in result and "HTTP/1.1 200" in result, True)
    return result
