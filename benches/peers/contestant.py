"""Who is measured: a name, how it is started, and what its answers must be."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import Callable

from h2load import Http2, answers
from process import Failed, Process
from redis import Redis
from stage import Stage
from tls import check_agreed, trusting

BODY = 100


@dataclass(frozen=True)
class Running:
    """A contestant that listens. The CPU time of `processes` is what is told; the gateway is the first of them."""

    port: int
    processes: list[Process]
    redis: Redis | None = None

    def script_calls(self) -> int:
        """How many scripts its Redis has run about requests. A gateway of ours announces itself every 2.5 seconds, whether it
        is asked or not: of its scripts these alone write a sorted set."""
        if not self.redis:
            return 0
        announced = self.redis.calls("zadd") if self.processes[0].name == "tidegate" else 0
        return self.redis.script_calls() - announced


@dataclass(frozen=True)
class Contestant:
    """`packages` are those it needs, `config` its file in config/, `status` what it answers under load, and `clients`
    how many clients the requests name in `X-Client` (0: they have no such field). With `http2`, h2load asks instead of wrk.
    With `tls` it is asked over TLS; with `greeted`, it is only greeted, and its requests are handshakes."""

    name: str
    packages: tuple[str, ...]
    config: str
    start: Callable[[Stage], Running]
    status: int = 200
    clients: int = 0
    http2: Http2 | None = None
    tls: bool = False
    greeted: bool = False

    def missing(self, stage: Stage) -> str | None:
        """Why it cannot be started, if it cannot."""
        reasons = [f"{name}: {stage.tools.missing[name]}" for name in self.packages if name in stage.tools.missing]
        return ", ".join(reasons) or None

    def check(self, stage: Stage, running: Running) -> None:
        """It answers what it should, and keeps the connection."""
        if self.tls:
            check_agreed(stage.tools.openssl, running.port)
        if self.http2:
            return answers(stage.tools.h2load, self.http2, running.port)
        connection = self.connection(running.port)
        try:
            connection.connect()
            first = connection.sock
            ask(connection)  # it may still be granted by a limit of one
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

    def connection(self, port: int) -> http.client.HTTPConnection:
        if self.tls:
            return http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=trusting())
        return http.client.HTTPConnection("127.0.0.1", port, timeout=5)


def ask(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
    connection.request("GET", "/", headers={"X-Client": "client-000001"})
    answer = connection.getresponse()
    return answer.status, answer.read()
