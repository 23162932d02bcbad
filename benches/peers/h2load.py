"""Load from h2load: HTTP/2 connections with many streams."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from process import Command, MeasurementError
from tls import CLIENTS

# h2load does not use the settings of OpenSSL's configuration file.
TLS_OPTIONS: Command = ["--tls13-ciphers=TLS_AES_128_GCM_SHA256", "--groups=X25519"]


@dataclass(frozen=True)
class Http2:
    """The load of h2load: the number of connections, the streams of each, and the target, header fields and body of the
    requests."""

    connections: int
    streams: int
    target: str = "/"
    fields: tuple[str, ...] = ()
    body: bytes = b""
    scheme: str = "http"


def h2load(program: Path, options: Http2, port: int, seconds: float) -> dict[str, int]:
    """Loads a gateway for `seconds`. Returns the counts under the same names as wrk.lua."""
    return run(program, options, port, f"-D{max(1, round(seconds))}")


def check_responses(program: Path, options: Http2, port: int) -> None:
    """Checks that each of a few requests gets a 200."""
    total = options.connections * options.streams
    counts = run(program, options, port, f"-n{total}")
    if counts["requests"] - counts["not_ok"] != total:
        raise MeasurementError(f"not all of {total} requests got a 200: {counts}")


def run(program: Path, options: Http2, port: int, duration: str) -> dict[str, int]:
    with NamedTemporaryFile() as body:
        body.write(options.body)
        body.flush()
        command: Command = [program, f"-c{options.connections}", f"-m{options.streams}", "-t1", duration]
        command += [word for field in options.fields for word in ("-H", field)]
        command += ["-d", body.name] if options.body else []
        command += TLS_OPTIONS if options.scheme == "https" else []
        return read([*command, f"{options.scheme}://127.0.0.1:{port}{options.target}"])


def read(command: Command) -> dict[str, int]:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=CLIENTS)
    duration = re.search(r"^finished in ([\d.]+)(us|ms|s)", done.stdout, re.M)
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", done.stdout)
    statuses = re.search(r"(\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", done.stdout)
    if not (duration and counts and statuses):
        raise MeasurementError(f"h2load printed no results: {done.stderr.strip() or done.stdout.strip()}")
    unit = {"us": 1, "ms": 1e3, "s": 1e6}[duration[2]]
    ok, *others = (int(count) for count in statuses.groups())
    _, failed, errored, late = (int(count) for count in counts.groups())
    return {
        "requests": ok + sum(others),
        "not_ok": sum(others),
        "microseconds": round(float(duration[1]) * unit),
        "connect": 0,
        "read": errored,
        "write": max(0, failed - errored - late - sum(others)),
        "timeout": late,
    }
