"""Sends requests of all kinds to two gateways: the first forwards to the second, which responds. So one load runs the code
of both sides: HTTP/1.1 and HTTP/2, plaintext and TLS, with all stores, logs and kinds of bodies."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

HERE = Path(__file__).resolve().parent
CONNECTIONS = 16
START_SECONDS, STOP_SECONDS = 20, 60

# Stores and access logs of the first gateway. Most gateways use Redis; many write a log.
GATEWAYS = [("memory", "off"), ("memory", "./log"), ("redis", "off"), ("redis", "./log")]


class LoadError(Exception):
    """A program did not start, or did not respond as expected."""


@dataclass(frozen=True)
class Kind:
    """Requests of one kind. `rounds` is their number on each connection."""

    path: str
    rounds: int
    status: int = 200
    method: str = "GET"
    body: bytes | None = None
    tls: bool = False
    is_new: bool = False
    fields: dict[str, str] = field(default_factory=dict)


KEYED = {"X-Api-Key": "key-50", "X-Env": "staging", "Cookie": "session=0123456789", "User-Agent": "load/1.0"}
KINDS = [
    Kind("/", 300),
    Kind("/limited/1?page=2", 300),
    Kind("/rejected", 300, status=429),
    Kind("/keyed/1", 300, fields=KEYED),
    Kind("/keyed/1", 20, status=401, fields={"X-Env": "staging"}),
    Kind("/unknown/1", 20, status=404),
    Kind("/http2/1", 200),
    Kind("/tls/http1/1", 100),
    Kind("/tls/http2/1", 100),
    Kind("/", 200, tls=True),
    Kind("/", 10, tls=True, is_new=True),
    Kind("/", 30, is_new=True),
    Kind("/", 100, method="POST", body=bytes(1 << 10)),
    Kind("/http2/1", 50, method="POST", body=bytes(1 << 10)),
    Kind("/", 4, method="POST", body=bytes(1 << 20)),
    Kind("/", 4, method="POST", body=bytes(1 << 20), tls=True),
    Kind("/http2/1", 2, method="POST", body=bytes(1 << 20)),
    Kind("/tls/http2/1", 2, method="POST", body=bytes(1 << 20)),
]
LOG_LINES = 20_000


def send_load(program: Path, folder: Path) -> None:
    """Sends the requests to `program`, which writes its profiles into `folder`."""
    ports = {name: free_port() for name in ("PORT", "TLS_PORT", "UPSTREAM", "UPSTREAM_TLS", "REDIS")}
    write_files(folder)
    with ExitStack() as programs:
        redis = ["redis-server", "--port", ports["REDIS"], "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        programs.enter_context(running(folder, ports["REDIS"], redis))
        upstream = write_rules(folder, "upstream.yaml", ports)
        programs.enter_context(running(folder, ports["UPSTREAM"], [program, "run", "-c", upstream, "--workers", "1"]))
        for store, log in GATEWAYS:
            url = f"redis://127.0.0.1:{ports['REDIS']}"
            values = {"STORE": store if store == "memory" else f'{{ url: "{url}", timeout: 1s }}', "LOG": log}
            rules = write_rules(folder, "gateway.yaml", {**ports, **values})
            with running(folder, ports["PORT"], [program, "run", "-c", rules, "--workers", "1"]):
                for kind in KINDS:
                    send(kind, ports["TLS_PORT" if kind.tls else "PORT"])
    command = [str(program), "replay", "-c", str(HERE / "replay.yaml"), str(folder / "access.log"), "--json"]
    done = subprocess.run(command, capture_output=True, env=environment(folder), timeout=120)
    if done.returncode:
        raise LoadError(f"replay: {done.stderr.decode()}")


def write_files(folder: Path) -> None:
    """Writes a certificate, API keys, and an access log."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "keys.yaml").write_text("".join(f"key-{number}: {{ id: user-{number} }}\n" for number in range(100)))
    with (folder / "access.log").open("w") as log:
        for number in range(LOG_LINES):
            client, second = number * number % 4_001, number // 20
            log.write(
                f"10.0.{client >> 8}.{client & 255} - - [26/Nov/2026:10:{second // 60:02}:{second % 60:02} +0000] "
                f'"GET /orders/{number} HTTP/1.1" 200 512 "-" "load/1.0"\n'
            )


def write_rules(folder: Path, name: str, values: dict[str, object]) -> Path:
    """Writes a rule file with its `@NAMES@` replaced."""
    text = (HERE / name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    path = folder / name
    path.write_text(text)
    return path


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "LLVM_PROFILE_FILE": str(folder / "%p.profraw")}


@contextmanager
def running(folder: Path, port: int, command: list[object]) -> Iterator[None]:
    """Runs a program that listens on `port`. At the end, it exits by itself and so writes its profile."""
    words = [str(word) for word in command]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, env=environment(folder)
        )
    try:
        wait_for(port, process, folder / "output")
        yield
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)
    finally:
        process.kill()
        process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes], output: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise LoadError(f"a program does not listen on port {port}: {output.read_text()}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def send(kind: Kind, port: int) -> None:
    """Sends the requests of a kind, concurrently on all connections."""
    connections = [connect(kind, port) for _ in range(CONNECTIONS)]
    for _ in range(kind.rounds):
        if kind.is_new:
            connections = [connect(kind, port) for _ in range(CONNECTIONS)]
        for connection in connections:
            connection.request(kind.method, kind.path, kind.body, kind.fields)
        for connection in connections:
            response = connection.getresponse()
            response.read()
            # A limit admits the first requests.
            if response.status != kind.status and (response.status, kind.status) != (200, 429):
                raise LoadError(f"{kind.path} responds with {response.status}")
        if kind.is_new:
            [connection.close() for connection in connections]
    [connection.close() for connection in connections]


def connect(kind: Kind, port: int) -> http.client.HTTPConnection:
    if not kind.tls:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
