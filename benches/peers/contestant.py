"""Who is measured: a name, how it is started, and what its answers must be."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import Callable

from process import Failed, Process, free_port
from stage import Stage

BODY = 100


@dataclass(frozen=True)
class Running:
    """A contestant that listens. Of `processes` the CPU time is told, the gateway's first."""

    port: int
    processes: list[Process]


@dataclass(frozen=True)
class Contestant:
    """`program` is the package that it needs, `config` its file in config/, `status` what it answers under load."""

    name: str
    program: str
    config: str
    start: Callable[[Stage], Running]
    status: int = 200
    clients: int = 0

    def missing(self, stage: Stage) -> str | None:
        return stage.tools.missing.get(self.program)

    def check(self, running: Running) -> None:
        """It answers what it should, and keeps the connection."""
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=5)
        try:
            connection.connect()
            first = connection.sock
            status, body = ask(connection)
            if connection.sock is not first:
                raise Failed("it closes connections")
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"no answer: {error!r}") from None
        finally:
            connection.close()
        if status != self.status:
            raise Failed(f"it answers {status} where {self.status} is expected: {body[:80]!r}")
        if status == 200 and len(body) != BODY:
            raise Failed(f"it answers {len(body)} bytes where {BODY} are expected")
        if status == 429:
            pass


def ask(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
    """The second of two answers on one connection, so that the first may still be granted."""
    for _ in range(2):
        connection.request("GET", "/", headers={"X-Client": "client-000001"})
        answer = connection.getresponse()
        status, body = answer.status, answer.read()
    return status, body


def tidegate(template: str, **values: object) -> Callable[[Stage], Running]:
    def start(stage: Stage) -> Running:
        port = free_port()
        config = stage.config(template, PORT=port, **values)
        command = [stage.tools.tidegate, "run", "-c", config, "--workers", "1"]
        return Running(port, [stage.start("tidegate", command, port)])

    return start


def nginx(template: str, **values: object) -> Callable[[Stage], Running]:
    def start(stage: Stage) -> Running:
        port = free_port()
        config = stage.config(template, PORT=port, **values)
        return Running(port, [stage.start("nginx", stage.nginx(config), port)])

    return start


def haproxy(template: str, **values: object) -> Callable[[Stage], Running]:
    def start(stage: Stage) -> Running:
        port = free_port()
        config = stage.config(template, PORT=port, **values)
        return Running(port, [stage.start("haproxy", [stage.tools.haproxy, "-db", "-f", config], port)])

    return start


def envoy(template: str, **values: object) -> Callable[[Stage], Running]:
    def start(stage: Stage) -> Running:
        port = free_port()
        config = stage.config(template, PORT=port, **values)
        command = [stage.tools.envoy, "-c", config, "--concurrency", "1", "-l", "error", "--disable-hot-restart"]
        return Running(port, [stage.start("envoy", command, port)])

    return start


def caddy(template: str) -> Callable[[Stage], Running]:
    def start(stage: Stage) -> Running:
        port = free_port()
        config = stage.config(template, PORT=port)
        home = {"GOMAXPROCS": "1", "HOME": str(stage.folder), "XDG_DATA_HOME": str(stage.folder)}
        command = [stage.tools.caddy, "run", "--adapter", "caddyfile", "--config", config]
        return Running(port, [stage.start("caddy", command, port, env=home)])

    return start
