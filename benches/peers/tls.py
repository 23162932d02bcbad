"""TLS: the certificate of all gateways, the negotiated parameters, and the load of handshakes."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import time
from pathlib import Path

from process import Command, MeasurementError

# Makes the clients offer the same parameters to all gateways.
CLIENTS = {**os.environ, "OPENSSL_CONF": str(Path(__file__).resolve().parent / "config" / "clients.cnf")}
NEGOTIATED = ("TLSv1.3", "TLS_AES_128_GCM_SHA256", "X25519")

# The number of concurrent clients that do handshakes.
HANDSHAKE_CLIENTS = 4


def make_certificate(openssl: Path, folder: Path) -> None:
    """Creates a self-signed ECDSA certificate with P-256: `cert.pem`, `key.pem`, and both in `both.pem` for haproxy."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command: Command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    done = subprocess.run([*command, "-keyout", key, "-out", cert], capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise MeasurementError(f"openssl failed to create a certificate: {done.stderr.strip()}")
    (folder / "both.pem").write_text(cert.read_text() + key.read_text())


def insecure_context() -> ssl.SSLContext:
    """Returns a context for clients that accept any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def check_negotiated(openssl: Path, port: int) -> None:
    """Checks that the gateway negotiates the version, cipher and group of the measurements."""
    command: Command = [openssl, "s_client", "-brief", "-connect", f"127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL, env=CLIENTS)
    if missing := [word for word in NEGOTIATED if word not in done.stderr]:
        raise MeasurementError(f"it does not negotiate {', '.join(missing)}: {done.stderr.strip()}")


def run_handshakes(openssl: Path, port: int, seconds: float) -> dict[str, int]:
    """Does full handshakes for `seconds`, without requests. Returns the counts under the same names as wrk.lua."""
    command: Command = [openssl, "s_time", "-new", "-connect", f"127.0.0.1:{port}", "-time", str(max(1, round(seconds)))]
    start = time.monotonic()
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    clients = [
        subprocess.Popen(command, stdin=quiet, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=CLIENTS)
        for _ in range(HANDSHAKE_CLIENTS)
    ]
    outputs = [client.communicate(timeout=60)[0] for client in clients]
    duration = time.monotonic() - start
    if any(client.returncode for client in clients):
        raise MeasurementError(f"a handshake failed: {' / '.join(text.strip() for text in outputs)[-200:]}")
    found = [re.search(r"^(\d+) connections in \d+ real", text, re.M) for text in outputs]
    counts = [int(count[1]) for count in found if count]
    errors = dict.fromkeys(("not_ok", "connect", "read", "write", "timeout"), 0)
    return {"requests": sum(counts), "microseconds": round(duration * 1e6), **errors}
