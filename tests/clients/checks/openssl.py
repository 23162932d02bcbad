"""s_client of openssl: versions, ciphers, names, resumption and stapling of a TLS listener."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from checking import Failed, check, expect
from harness import Harness

REQUEST = b"GET /plain HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def s_client(harness: Harness, *options: object, address: str = "") -> str:
    """Returns the output of s_client for a connection with one request, which the gateway closes."""
    command = ["openssl", "s_client", "-connect", address or harness.tls, "-CAfile", harness.certificates.ca, "-ign_eof"]
    words = [str(word) for word in (*command, *options)]
    done = subprocess.run(words, input=REQUEST, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10, check=False)
    return done.stdout.decode(errors="replace")


def negotiated(result: str) -> str:
    """Returns the version and the cipher, or an empty text if there was no connection."""
    found = re.search(r"^New, (\S+), Cipher is (\S+)|^Reused, (\S+), Cipher is (\S+)", result, re.M)
    words = [word for word in found.groups() if word] if found else []
    return " ".join(words) if "HTTP/1.1 200" in result else ""


@check("TLS 1.2 and 1.3 are accepted, and nothing older")
def versions(harness: Harness) -> None:
    for option, version in (("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")):
        expect(option, negotiated(s_client(harness, option)).split()[0:1], [version])
    for option in ("-tls1_1", "-tls1"):
        expect(option, negotiated(s_client(harness, option, "-cipher", "ALL:@SECLEVEL=0")), "")


@check("a client without AEAD ciphers is rejected")
def ciphers(harness: Harness) -> None:
    result = negotiated(s_client(harness, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"))
    expect("AEAD", result.endswith("ECDHE-ECDSA-AES128-GCM-SHA256"), True)
    for cipher in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES128-SHA", "AES128-SHA"):
        expect(cipher, negotiated(s_client(harness, "-tls1_2", "-cipher", cipher)), "")


@check("the server name selects the certificate, and the first one is the default")
def names(harness: Harness) -> None:
    wanted = {"localhost": "api", "web.test": "web", "a.wild.test": "web", "a.b.wild.test": "api", "other.test": "api"}
    for name, certificate in wanted.items():
        result = s_client(harness, "-servername", name)
        expect(name, re.search(r"^subject=O = tests, CN = (\S+)", result, re.M)[1], certificate)
    result = s_client(harness, "-noservername")
    expect("no name", re.search(r"^subject=O = tests, CN = (\S+)", result, re.M)[1], "api")


@check("the certificate is verified by the authority")
def verifies(harness: Harness) -> None:
    expect("verified", "Verify return code: 0 (ok)" in s_client(harness, "-servername", "localhost"), True)


@check("ALPN prefers h2 to http/1.1")
def protocols(harness: Harness) -> None:
    for asked, chosen in (("h2,http/1.1", "h2"), ("http/1.1,h2", "h2"), ("http/1.1", "http/1.1")):
        result = s_client(harness, "-alpn", asked)
        expect(asked, re.search(r"^ALPN protocol: (\S+)", result, re.M)[1], chosen)


@check("a session is resumed, in TLS 1.2 and 1.3, on any worker")
def resumes(harness: Harness) -> None:
    for option in ("-tls1_2", "-tls1_3"):
        session = harness.scratch / f"session{option}"
        session.unlink(missing_ok=True)
        first = s_client(harness, option, "-sess_out", session)
        expect(f"{option}, the first", "\nNew, TLSv1" in first and session.exists(), True)
        for _ in range(8):
            expect(f"{option}, another", "\nReused, TLSv1" in s_client(harness, option, "-sess_in", session), True)


@check("the OCSP response is stapled")
def staples(harness: Harness) -> None:
    expect("OCSP", "OCSP Response Status: successful" in s_client(harness, "-status", "-servername", "localhost"), True)


@check("the connection ends with close_notify")
def closes(harness: Harness) -> None:
    result = s_client(harness, "-msg", "-tls1_2")
    expect("received", re.search(r"<<< TLS.*Alert.*warning close_notify", result) is not None, True)
