"""Load by h2load: HTTP/2, on connections with many streams."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from process import Command, Failed
from tls import CLIENTS

# It has its own preferences, whatever those of OpenSSL are.
TLS_OPTIONS: Command = ["--tls13-ciphers=TLS_AES_128_GCM_SHA256", "--groups=X25519"]


@dataclass(frozen=True)
class Http2:
    """What h2load asks: on so many connections with so many streams each, this target with these fields and this body, if
    there is one."""

    connections: int
    streams: int
    target: str = "/"
    fields: tuple[str, ...] = ()
    body: bytes = b""
    scheme: str = "http"


def h2load(program: Path, asked: Http2, port: int, seconds: float) -> dict[str, int]:
    """What became of the requests of so many seconds, in the words of wrk.lua."""
    return run(program, asked, port, f"-D{max(1, round(seconds))}")


def answers(program: Path, asked: Http2, port: int) -> None:
    """All of a few requests are answered."""
    few = asked.connections * asked.streams
    told = run(program, asked, port, f"-n{few}")
    if told["requests"] - told["refused"] != few:
        raise Failed(f"of {few} requests, not all are answered with 200: {told}")


def run(program: Path, asked: Http2, port: int, how_long: str) -> dict[str, int]:
    with NamedTemporaryFile() as body:
        body.write(asked.body)
        body.flush()
        command: Command = [program, f"-c{asked.connections}", f"-m{asked.streams}", "-t1", how_long]
        command += [word for field in asked.fields for word in ("-H", field)]
        command += ["-d", body.name] if asked.body else []
        command += TLS_OPTIONS if asked.scheme == "https" else []
        return read([*command, f"{asked.scheme}://127.0.0.1:{port}{asked.target}"])


def read(command: Command) -> dict[str, int]:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=CLIENTS)
    took = re.search(r"^finished in ([\d.]+)(us|ms|s)", done.stdout, re.M)
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", done.stdout)
    statuses = re.search(r"(\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", done.stdout)
    if not (took and counts and statuses):
        raise Failed(f"h2load says nothing: {done.stderr.strip() or done.stdout.strip()}")
    unit = {"us": 1, "ms": 1e3, "s": 1e6}[took[2]]
    granted, *strangers = (int(count) for count in statuses.groups())
    _, failed, errored, late = (int(count) for count in counts.groups())
    return {
        "requests": granted + sum(strangers),
        "refused": sum(strangers),
        "microseconds": round(float(took[1]) * unit),
        "connect": 0,
        "read": errored,
        "write": max(0, failed - errored - late - sum(strangers)),
        "timeout": late,
    }
