"""Loads a contestant with wrk, h2load or TLS handshakes, and measures the cost."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from contestant import MIB, Contestant, Running
from h2load import h2load
from install import Tools
from process import Command, MeasurementError
from tls import CLIENTS, run_handshakes

CONNECTIONS = 64
SCRIPT = Path(__file__).resolve().parent / "config" / "wrk.lua"

# A pause of a busy machine for some seconds is no failure of the contestant.
TIMEOUT = "10s"
ERRORS = ("connect", "read", "write", "timeout")

# The allowed share of granted requests if a contestant rejects: some permits become available during the measurement.
ALLOWED_OTHERS = 1e-3


@dataclass(frozen=True)
class Slice:
    """A contestant under load for a few seconds: the requests or MiB, the CPU time of each process in seconds, and the
    number of scripts that its Redis has run."""

    requests: float
    seconds: float
    cpu: dict[str, float]
    calls: int

    @property
    def cost(self) -> float:
        """CPU time per request of all processes, in microseconds."""
        return sum(self.cpu.values()) / self.requests * 1e6

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    def cost_of(self, process: str) -> float:
        return self.cpu[process] / self.requests * 1e6


def load(tools: Tools, contestant: Contestant, running: Running, seconds: float) -> Slice:
    """Loads a contestant for `seconds` (rounded, at least one), and measures the CPU time of its processes."""
    calls = running.script_calls()
    before = {process.name: process.cpu_seconds() for process in running.processes}
    if contestant.http2:
        counts = h2load(tools.h2load, contestant.http2, running.port, seconds)
    elif contestant.handshakes_only:
        counts = run_handshakes(tools.openssl, running.port, seconds)
    else:
        counts = wrk(tools, contestant, running.port, seconds)
    cpu = {process.name: process.cpu_seconds() - before[process.name] for process in running.processes}
    check(counts, contestant.status)
    units = counts["requests"] * (contestant.large.size / MIB if contestant.large else 1)
    return Slice(units, counts["microseconds"] / 1e6, cpu, running.script_calls() - calls)


def wrk(tools: Tools, contestant: Contestant, port: int, seconds: float) -> dict[str, int]:
    connections = contestant.connections or (contestant.large.connections if contestant.large else CONNECTIONS)
    command: Command = [tools.wrk, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", TIMEOUT]
    for name, value in contestant.fields:
        command += ["-H", f"{name}: {value}"]
    scheme = "https" if contestant.tls else "http"
    upload = contestant.large.size if contestant.large and contestant.large.is_upload else 0
    command += ["-s", SCRIPT, f"{scheme}://127.0.0.1:{port}{contestant.path}", "--"]
    command += [f"clients={contestant.clients}", f"upload={upload}", f"close={int(contestant.new_connections)}"]
    command += [f"post={contestant.post}"] if contestant.post else []
    deadline = seconds + 30
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=deadline, stdin=subprocess.DEVNULL, env=CLIENTS
    )
    try:
        counts: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise MeasurementError(f"wrk printed no results: {done.stderr.strip() or done.stdout.strip()}") from None
    return counts


def check(counts: dict[str, int], status: int) -> None:
    """Fails unless the responses are as expected."""
    requests, not_ok = counts["requests"], counts["not_ok"]
    if not requests:
        raise MeasurementError("no request got a response")
    if broken := [f"{counts[kind]} x {kind}" for kind in ERRORS if counts[kind]]:
        raise MeasurementError(f"connection errors in {requests} requests: {', '.join(broken)}")
    others = not_ok if status == 200 else requests - not_ok
    if others > (0 if status == 200 else max(1, requests * ALLOWED_OTHERS)):
        raise MeasurementError(f"{others} of {requests} responses were not {status}")
