"""Measures the memory of a gateway per idle connection."""

from __future__ import annotations

import resource
import socket
import struct
import time
from dataclasses import dataclass
from typing import Callable

from contestant import Contestant
from process import MeasurementError
from rows import PLAIN
from section import Bar, Line, Section, Spread, Verdict
from stage import Stage
from tls import insecure_context
from tls_rows import TLS

COLUMNS = ["min", "median bytes", "max", "first / this", "connections"]
# Seconds between two new connections. After a burst, an allocator keeps memory that it has not returned yet: up to 3 MB of
# the gateway, for any number of connections.
PAUSE = 0.0005
ABOUT = (
    "Each connection has received one response and is idle. The growth of the gateway's proportional set size is "
    f"divided by the number of connections. They are opened one after the other, with pauses of {PAUSE * 1e3:.1f} ms."
)


@dataclass(frozen=True)
class Idle:
    """A measurement: the contestants, the number of connections, and the goal for the first contestant."""

    name: str
    title: str
    contestants: list[Contestant]
    connections: int
    bound: float
    max_rounds: int
    to: str = "haproxy"
    about: str = ABOUT


PLAINTEXT = Idle("memory", "Memory per idle connection", PLAIN.contestants, 10_000, 1.00, 2)
OVER_TLS = Idle(
    "tls-memory",
    "Memory per idle TLS connection",
    TLS.contestants[:3],
    2_000,
    1.50,
    1,
    about=f"{ABOUT} The connections use TLS 1.3.",
)

# Files that a gateway may open in addition to its connections.
SPARE_FILES = 2_000
SETTLING_SECONDS = 5.0
TLS_CONTEXT = insecure_context()
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
# The number of connections that are used again at the end, to check that they were kept open.
SAMPLE = 50


def measure(stage: Stage, idle: Idle, rounds: int, say: Callable[[str], None]) -> Section:
    """Starts each contestant again in each round."""
    connections = allowed_connections(idle.connections)
    measured: dict[str, list[float]] = {contestant.name: [] for contestant in idle.contestants}
    failures: dict[str, str] = {}
    rounds = min(rounds, idle.max_rounds)
    for number in range(rounds):
        for contestant in idle.contestants:
            say(f"{idle.name}, round {number + 1} of {rounds}: {contestant.name}")
            try:
                measured[contestant.name].append(bytes_per_connection(stage, contestant, connections))
            except (MeasurementError, OSError) as failure:
                failures[contestant.name] = str(failure)
    return section(idle, measured, failures, connections)


def allowed_connections(connections: int) -> int:
    """Raises the limit of open files for this process and its children as far as possible. Returns the possible number
    of connections, at most `connections`."""
    wanted = PLAINTEXT.connections + SPARE_FILES
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, hard), max(wanted, hard)))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Half of the files: a gateway may hold an upstream connection for each client connection, also for an idle one, as
    # Tidegate does.
    return min(connections, (allowed - SPARE_FILES) // 2)


def bytes_per_connection(stage: Stage, contestant: Contestant, connections: int) -> float:
    """Returns the growth of the memory per connection of a gateway that has served a few requests before."""
    if reason := contestant.missing(stage):
        raise MeasurementError(reason)
    clients: list[socket.socket] = []
    try:
        with stage.scene():
            running = contestant.start(stage)
            gateway = running.processes[0]
            for _ in range(SAMPLE):
                contestant.check(stage, running)
            before = after_settling(gateway.memory_bytes)
            for _ in range(connections):
                clients.append(connect(contestant, running.port))
                exchange(clients[-1])
                time.sleep(PAUSE)
            after = after_settling(gateway.memory_bytes)
            for client in clients[:: max(1, connections // SAMPLE)]:
                exchange(client)
    finally:
        for client in clients:
            client.close()
    return (after - before) / connections


def connect(contestant: Contestant, port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), 5)
    return TLS_CONTEXT.wrap_socket(client) if contestant.tls else client


def after_settling(measured: Callable[[], int]) -> int:
    time.sleep(SETTLING_SECONDS)
    return measured()


def exchange(client: socket.socket) -> None:
    client.sendall(REQUEST)
    response = b""
    while not is_complete(response):
        received = client.recv(4096)
        if not received:
            raise MeasurementError("it closes idle connections")
        response += received
    if not response.startswith(b"HTTP/1.1 200 "):
        raise MeasurementError(f"unexpected response: {response[:40]!r}")
    # Close with a reset, so that the port is not blocked in TIME_WAIT.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def is_complete(response: bytes) -> bool:
    head, end, body = response.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
    return bool(end) and bool(length) and len(body) >= int(length)


def section(idle: Idle, measured: dict[str, list[float]], failures: dict[str, str], connections: int) -> Section:
    spreads = {name: Spread.of(values) for name, values in measured.items() if name not in failures}
    first = spreads.get(idle.contestants[0].name)
    lines = []
    for contestant in idle.contestants:
        spread = spreads.get(contestant.name)
        ratio = f"{first.median / spread.median:.2f}" if first and spread else ""
        cells = [*spread.cells(0), ratio, f"{connections:,}"] if spread else []
        lines.append(Line(contestant.name, contestant.config, cells, failures.get(contestant.name)))
    bars = [Bar(name, spread, {}) for name, spread in spreads.items()]
    unit = "bytes per idle connection"
    return Section(idle.name, idle.title, idle.about, COLUMNS, lines, [verdict(idle, spreads)], unit, bars)


def verdict(idle: Idle, spreads: dict[str, Spread]) -> Verdict:
    ours = idle.contestants[0].name
    goal = f"memory per idle connection of {ours}: at most {idle.bound:.2f} x {idle.to}"
    if ours not in spreads or idle.to not in spreads:
        return Verdict(goal, "nothing", None)
    ratio = spreads[ours].median / spreads[idle.to].median
    return Verdict(goal, f"{ratio:.2f} x", ratio <= idle.bound)
