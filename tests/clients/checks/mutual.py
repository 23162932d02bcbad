"""curl with client certificates: authentication, and the clients of limits."""

from __future__ import annotations

from pathlib import Path

from checking import check, expect, output
from harness import Harness

VERSIONS = ("--http1.1", "--http2")
# The files of a certificate and of its key.
Certificate = tuple[Path, Path]


def curl(harness: Harness, certificate: Certificate | None, *arguments: object, codes: tuple[int, ...] = (0,)) -> str:
    own = ("--cert", certificate[0], "--key", certificate[1]) if certificate else ()
    ca = ("--cacert", harness.certificates.ca)
    return output("curl", "-sS", "--max-time", "10", *ca, *own, *arguments, codes=codes)


def statuses(harness: Harness, certificate: Certificate, path: str, times: int) -> list[str]:
    """Returns the statuses of `times` requests, each on a new connection."""
    url = f"https://localhost:{harness.mutual.rpartition(':')[2]}{path}"
    ask = ("-o", "/dev/null", "-w", "%{http_code}", url)
    return [curl(harness, certificate, VERSIONS[number % 2], *ask) for number in range(times)]


@check("curl is rejected without a client certificate, and with one of another authority")
def requires_certificates(harness: Harness) -> None:
    url = f"https://{harness.mutual}/plain"
    for version in VERSIONS:
        for tls in (("--tlsv1.3",), ("--tlsv1.2", "--tls-max", "1.2")):
            # Code 98: curl knows that the server requires a certificate.
            curl(harness, None, version, *tls, url, codes=(35, 56, 98))
            curl(harness, harness.other_authority.files("client"), version, *tls, url, codes=(35, 56))
            expect("trusted certificate", curl(harness, harness.certificates.files("client"), version, *tls, url), "hello\n")


def expect_two_clients(harness: Harness, path: str, one: Certificate, again: Certificate, other: Certificate) -> None:
    """Expects that a limit of two requests treats `one` and `again` as one client, and `other` as another."""
    expect("the first", statuses(harness, one, path, 3), ["200", "200", "429"])
    expect("a new certificate of the first", statuses(harness, again, path, 1), ["429"])
    expect("the other", statuses(harness, other, path, 3), ["200", "200", "429"])


@check("client: tls:subject identifies clients by the subject of their certificates")
def identifies_subjects(harness: Harness) -> None:
    make = harness.certificates.make
    one = make("subject-1", "DNS:one.test", subject="/O=subjects/CN=one")
    again = make("subject-2", "DNS:again.test", subject="/O=subjects/CN=one")
    other = make("subject-3", "DNS:one.test", subject="/O=subjects/CN=other")
    expect_two_clients(harness, "/by-subject/plain", one, again, other)


@check("client: tls:san identifies clients by the names of their certificates")
def identifies_names(harness: Harness) -> None:
    make = harness.certificates.make
    one = make("san-1", "DNS:one.test", subject="/O=names/CN=one")
    again = make("san-2", "DNS:one.test", subject="/O=names/CN=again")
    other = make("san-3", "URI:spiffe://test/other", subject="/O=names/CN=one")
    expect_two_clients(harness, "/by-san/plain", one, again, other)
