"""openssl's s_client: versions, ciphers, names, resumption and stapling of a listener with TLS."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from checking import Failed, check, expect
from stage import Stage

REQUEST = b"GET /plain HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def s_client(stage: Stage, *options: object, address: str = "") -> str:
    """What it tells of a connection on which it asks once, until the gateway closes it."""
    command = ["openssl", "s_client", "-connect", address or stage.tls, "-CAfile", stage.certificates.ca, "-ign_eof"]
    words = [str(word) for word in (*command, *options)]
    done = subprocess.run(words, input=REQUEST, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10, check=False)
    return done.stdout.decode(errors="replace")


def negotiated(told: str) -> str:
    """The version and the cipher; nothing if there was no connection."""
    found = re.search(r"^New, (\S+), Cipher is (\S+)|^Reused, (\S+), Cipher is (\S+)", told, re.M)
    words = [word for word in found.groups() if word] if found else []
    return " ".join(words) if "HTTP/1.1 200" in told else ""


@check("TLS 1.2 and 1.3 are spoken, and nothing older")
def versions(stage: Stage) -> None:
    for option, version in (("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")):
        expect(option, negotiated(s_client(stage, option)).split()[0:1], [version])
    for option in ("-tls1_1", "-tls1"):
        expect(option, negotiated(s_client(stage, option, "-cipher", "ALL:@SECLEVEL=0")), "")


@check("a client without AEAD ciphers is not served")
def ciphers(stage: Stage) -> None:
    told = negotiated(s_client(stage, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"))
    expect("AEAD", told.endswith("ECDHE-ECDSA-AES128-GCM-SHA256"), True)
    for cipher in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES128-SHA", "AES128-SHA"):
        expect(cipher, negotiated(s_client(stage, "-tls1_2", "-cipher", cipher)), "")


@check("the name that is asked for chooses the certificate, and the first is for all others")
def names(stage: Stage) -> None:
    wanted = {"localhost": "api", "web.test": "web", "a.wild.test": "web", "a.b.wild.test": "api", "other.test": "api"}
    for name, certificate in wanted.items():
        told = s_client(stage, "-servername", name)
        expect(name, re.search(r"^subject=O = tests, CN = (\S+)", told, re.M)[1], certificate)
    told = s_client(stage, "-noservername")
    expect("no name", re.search(r"^subject=O = tests, CN = (\S+)", told, re.M)[1], "api")


@check("the certificate is that of the authority")
def verifies(stage: Stage) -> None:
    expect("it verifies", "Verify return code: 0 (ok)" in s_client(stage, "-servername", "localhost"), True)


@check("ALPN chooses h2 before http/1.1")
def protocols(stage: Stage) -> None:
    for asked, chosen in (("h2,http/1.1", "h2"), ("http/1.1,h2", "h2"), ("http/1.1", "http/1.1")):
        told = s_client(stage, "-alpn", asked)
        expect(asked, re.search(r"^ALPN protocol: (\S+)", told, re.M)[1], chosen)


@check("a session is resumed, in TLS 1.2 and in 1.3, on any worker")
def resumes(stage: Stage) -> None:
    for option in ("-tls1_2", "-tls1_3"):
        session = stage.scratch / f"session{option}"
        session.unlink(missing_ok=True)
        first = s_client(stage, option, "-sess_out", session)
        expect(f"{option}, the first", "\nNew, TLSv1" in first and session.exists(), True)
        for _ in range(8):
            expect(f"{option}, another", "\nReused, TLSv1" in s_client(stage, option, "-sess_in", session), True)


@check("the authority's word on the certificate is stapled")
def staples(stage: Stage) -> None:
    expect("OCSP", "OCSP Response Status: successful" in s_client(stage, "-status", "-servername", "localhost"), True)


@check("the end of a connection is told by close_notify")
def closes(stage: Stage) -> None:
    told = s_client(stage, "-msg", "-tls1_2")
    expect("received", re.search(r"<<< TLS.*Alert.*warning close_notify", told) is not None, True)
