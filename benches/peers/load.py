"""Load by wrk, by h2load, or by handshakes alone, and what one slice of it cost."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from contestant import Contestant, Running
from h2load import h2load
from install import Tools
from process import Command, Failed
from tls import CLIENTS, greet

CONNECTIONS = 64
SCRIPT = Path(__file__).resolve().parent / "config" / "wrk.lua"

# Where a busy machine stands still for seconds, that is no failure of who is measured.
PATIENCE = "10s"
ERRORS = ("connect", "read", "write", "timeout")

# Of refusing contestants: permits that come back while they are measured let a few requests pass.
STRAY = 1e-3


@dataclass(frozen=True)
class Slice:
    """One contestant under load for a few seconds. `cpu` is in seconds, by process; `calls` are scripts that its Redis
    has run."""

    requests: int
    seconds: float
    cpu: dict[str, float]
    calls: int

    @property
    def cost(self) -> float:
        """CPU time for each request, of all the processes together, in microseconds."""
        return sum(self.cpu.values()) / self.requests * 1e6

    @property
    def rate(self) -> float:
        """Requests for each second."""
        return self.requests / self.seconds

    def cost_of(self, process: str) -> float:
        return self.cpu[process] / self.requests * 1e6


def load(tools: Tools, contestant: Contestant, running: Running, seconds: float) -> Slice:
    """Loads a contestant for `seconds` (whole ones, at least one), and reads what it cost its processes."""
    calls = running.script_calls()
    before = {process.name: process.cpu_seconds() for process in running.processes}
    if contestant.http2:
        told = h2load(tools.h2load, contestant.http2, running.port, seconds)
    elif contestant.greeted:
        told = greet(tools.openssl, running.port, seconds)
    else:
        told = wrk(tools, contestant, running.port, seconds)
    cpu = {process.name: process.cpu_seconds() - before[process.name] for process in running.processes}
    check(told, contestant.status)
    return Slice(told["requests"], told["microseconds"] / 1e6, cpu, running.script_calls() - calls)


def wrk(tools: Tools, contestant: Contestant, port: int, seconds: float) -> dict[str, int]:
    command: Command = [tools.wrk, "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "--timeout", PATIENCE]
    scheme = "https" if contestant.tls else "http"
    command += ["-s", SCRIPT, f"{scheme}://127.0.0.1:{port}/", "--", f"clients={contestant.clients}"]
    patience = seconds + 30
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patience, stdin=subprocess.DEVNULL, env=CLIENTS
    )
    try:
        told: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise Failed(f"wrk says nothing: {done.stderr.strip() or done.stdout.strip()}") from None
    return told


def check(told: dict[str, int], status: int) -> None:
    """All answers are those that are measured."""
    requests, refused = told["requests"], told["refused"]
    if not requests:
        raise Failed("no request was answered")
    if broken := [f"{told[kind]} x {kind}" for kind in ERRORS if told[kind]]:
        raise Failed(f"errors of connections in {requests} requests: {', '.join(broken)}")
    strangers = refused if status == 200 else requests - refused
    if strangers > (0 if status == 200 else max(1, requests * STRAY)):
        raise Failed(f"{strangers} of {requests} answers were not {status}")
