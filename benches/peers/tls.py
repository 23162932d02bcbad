"""TLS: the one certificate of all gateways, what they agree upon with clients, and the load of handshakes."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import time
from pathlib import Path

from process import Command, Failed

# Asks all gateways for the same.
CLIENTS = {**os.environ, "OPENSSL_CONF": str(Path(__file__).resolve().parent / "config" / "clients.cnf")}
AGREED = ("TLSv1.3", "TLS_AES_128_GCM_SHA256", "X25519")

# So many clients greet at once, each on one connection after the other.
GREETING = 4


def make_certificate(openssl: Path, folder: Path) -> None:
    """ECDSA with P-256, signed by itself: `cert.pem`, `key.pem`, and both in one file, as haproxy wants them."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command: Command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    done = subprocess.run([*command, "-keyout", key, "-out", cert], capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise Failed(f"openssl makes no certificate: {done.stderr.strip()}")
    (folder / "both.pem").write_text(cert.read_text() + key.read_text())


def trusting() -> ssl.SSLContext:
    """For clients that take any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def check_agreed(openssl: Path, port: int) -> None:
    """Version, cipher and group are those that all are measured with."""
    command: Command = [openssl, "s_client", "-brief", "-connect", f"127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL, env=CLIENTS)
    if missing := [word for word in AGREED if word not in done.stderr]:
        raise Failed(f"it does not speak {', '.join(missing)}: {done.stderr.strip()}")


def greet(openssl: Path, port: int, seconds: float) -> dict[str, int]:
    """Full handshakes for so many seconds, and nothing else on their connections; told in the words of wrk.lua."""
    command: Command = [openssl, "s_time", "-new", "-connect", f"127.0.0.1:{port}", "-time", str(max(1, round(seconds)))]
    start = time.monotonic()
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    greeting = [
        subprocess.Popen(command, stdin=quiet, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=CLIENTS)
        for _ in range(GREETING)
    ]
    told = [client.communicate(timeout=60)[0] for client in greeting]
    took = time.monotonic() - start
    if any(client.returncode for client in greeting):
        raise Failed(f"a handshake failed: {' / '.join(text.strip() for text in told)[-200:]}")
    found = [re.search(r"^(\d+) connections in \d+ real", text, re.M) for text in told]
    counts = [int(count[1]) for count in found if count]
    errors = dict.fromkeys(("refused", "connect", "read", "write", "timeout"), 0)
    return {"requests": sum(counts), "microseconds": round(took * 1e6), **errors}
