"""A gateway that is replaced, and one whose certificate is, while wrk, node and grpcio ask it over TLS."""

from __future__ import annotations

import signal
from pathlib import Path

from checking import check, expect
from gateway import Gateway
from load import Load
from stage import Stage

from checks.openssl import s_client

NAMES = ("DNS:localhost", "IP:127.0.0.1")


def start(stage: Stage, *arguments: object, listen: str = "127.0.0.1:0", admin: str = "127.0.0.1:0") -> Gateway:
    values = {"ORIGIN": stage.origin, "GRPC": stage.grpc.port, "FOLDER": stage.scratch}
    return stage.start_gateway(stage.folder / "renewed.yaml", *arguments, LISTEN=listen, ADMIN=admin, **values)


@check("20 gateways take the place of each other under load over TLS, and no request fails", longest=120)
def is_taken_over(stage: Stage) -> None:
    put_in_place(stage, *stage.certificates.make("renewed-once", *NAMES))
    arguments = ("--handover", stage.scratch / "handover.sock", "--drain-timeout", 10)
    gateway = start(stage, *arguments)
    listen, admin = gateway.addresses[0], gateway.admin
    with Load(stage, listen) as load:
        for _ in range(20):
            load.goes_on()
            before, gateway = gateway, start(stage, *arguments, listen=listen, admin=admin)
            code, said = before.end()
            expect("the end of the one before", (code, "a successor serves" in said), (0, True))
        load.goes_on()
        print(f"          {load.end()}")


@check("a certificate is replaced 50 times under load, and no handshake and no request fails", longest=120)
def is_renewed(stage: Stage) -> None:
    renewed = [stage.certificates.make(f"renewed-{number}", *NAMES) for number in range(51)]
    put_in_place(stage, *renewed[0])
    gateway = start(stage)
    with Load(stage, gateway.addresses[0]) as load:
        for certificate, key in renewed[1:]:
            text = certificate.read_text()
            put_in_place(stage, certificate, key)
            gateway.process.send_signal(signal.SIGHUP)
            while text not in shown(stage, gateway):
                pass
            load.goes_on()
        print(f"          {load.end()}")


def put_in_place(stage: Stage, certificate: Path, key: Path) -> None:
    """One after the other, so that for a moment they do not belong together."""
    certificate.rename(stage.scratch / "renewed.pem")
    key.rename(stage.scratch / "renewed.key")


def shown(stage: Stage, gateway: Gateway) -> str:
    """What openssl tells of a connection, with the certificate that it is shown. It must verify it, and be answered."""
    told = s_client(stage, "-servername", "localhost", "-verify_return_error", address=gateway.addresses[0])
    expect("it verifies and is served", "Verify return code: 0 (ok)" in told and "HTTP/1.1 200" in told, True)
    return told
