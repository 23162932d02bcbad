"""curl with certificates: who is served where one is required, and whom limits take it for."""

from __future__ import annotations

from pathlib import Path

from checking import check, expect, output
from stage import Stage

VERSIONS = ("--http1.1", "--http2")
# The files of a certificate and of its key.
Certificate = tuple[Path, Path]


def curl(stage: Stage, certificate: Certificate | None, *arguments: object, codes: tuple[int, ...] = (0,)) -> str:
    shown = ("--cert", certificate[0], "--key", certificate[1]) if certificate else ()
    ca = ("--cacert", stage.certificates.ca)
    return output("curl", "-sS", "--max-time", "10", *ca, *shown, *arguments, codes=codes)


def statuses(stage: Stage, certificate: Certificate, path: str, times: int) -> list[str]:
    """What so many requests are answered, each on a connection of its own."""
    url = f"https://localhost:{stage.mutual.rpartition(':')[2]}{path}"
    ask = ("-o", "/dev/null", "-w", "%{http_code}", url)
    return [curl(stage, certificate, VERSIONS[number % 2], *ask) for number in range(times)]


@check("curl without a certificate is not served where one is required, and with one of a stranger's neither")
def asks_for_certificates(stage: Stage) -> None:
    url = f"https://{stage.mutual}/plain"
    for version in VERSIONS:
        for tls in (("--tlsv1.3",), ("--tlsv1.2", "--tls-max", "1.2")):
            # It knows what it is told: a certificate is required.
            curl(stage, None, version, *tls, url, codes=(35, 56, 98))
            curl(stage, stage.strangers.files("client"), version, *tls, url, codes=(35, 56))
            expect("with its own", curl(stage, stage.certificates.files("client"), version, *tls, url), "hello\n")


def expect_two_clients(stage: Stage, path: str, one: Certificate, again: Certificate, other: Certificate) -> None:
    """Expects that a limit of two requests takes the first two certificates for one client, and the last for another."""
    expect("the first", statuses(stage, one, path, 3), ["200", "200", "429"])
    expect("a new certificate of the first", statuses(stage, again, path, 1), ["429"])
    expect("the other", statuses(stage, other, path, 3), ["200", "200", "429"])


@check("client: tls:subject takes certificates of one subject for one client, and of another for another")
def knows_subjects(stage: Stage) -> None:
    make = stage.certificates.make
    one = make("subject-1", "DNS:one.test", subject="/O=subjects/CN=one")
    again = make("subject-2", "DNS:again.test", subject="/O=subjects/CN=one")
    other = make("subject-3", "DNS:one.test", subject="/O=subjects/CN=other")
    expect_two_clients(stage, "/by-subject/plain", one, again, other)


@check("client: tls:san takes certificates of one name for one client, and of another for another")
def knows_names(stage: Stage) -> None:
    make = stage.certificates.make
    one = make("san-1", "DNS:one.test", subject="/O=names/CN=one")
    again = make("san-2", "DNS:one.test", subject="/O=names/CN=again")
    other = make("san-3", "URI:spiffe://test/other", subject="/O=names/CN=one")
    expect_two_clients(stage, "/by-san/plain", one, again, other)
