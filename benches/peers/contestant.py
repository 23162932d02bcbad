"""The contestants: their names, how to start them, and their expected responses."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import Callable

from h2load import Http2, check_responses
from process import MeasurementError, Process
from redis import Redis
from stage import Stage
from tls import check_negotiated, insecure_context

BODY = 100


@dataclass(frozen=True)
class Running:
    """A running contestant. `processes` are the processes whose CPU time counts. The gateway is the first of them."""

    port: int
    processes: list[Process]
    redis: Redis | None = None

    def script_calls(self) -> int:
        """Returns the number of scripts that its Redis has run for requests. Tidegate announces itself every 2.5
        seconds, also without requests. These scripts are excluded: they alone write a sorted set."""
        if not self.redis:
            return 0
        announcements = self.redis.calls("zadd") if self.processes[0].name == "tidegate" else 0
        return self.redis.script_calls() - announcements


@dataclass(frozen=True)
class Contestant:
    """A contestant. `packages` are the packages that it needs, and `config` is its file in config/. `status` is its
    expected status under load. `clients` is the number of clients that the requests name in `X-Client`, or 0 without
    this field. With `http2`, the load is h2load instead of wrk. With `tls`, the requests are sent over TLS. With
    `handshakes_only`, the load is TLS handshakes without requests."""

    name: str
    packages: tuple[str, ...]
    config: str
    start: Callable[[Stage], Running]
    status: int = 200
    clients: int = 0
    http2: Http2 | None = None
    tls: bool = False
    handshakes_only: bool = False

    def missing(self, stage: Stage) -> str | None:
        """Returns the reason why the contestant cannot start, if there is one."""
        reasons = [f"{name}: {stage.tools.missing[name]}" for name in self.packages if name in stage.tools.missing]
        return ", ".join(reasons) or None

    def check(self, stage: Stage, running: Running) -> None:
        """Checks that the contestant responds as expected and keeps the connection open."""
        if self.tls:
            check_negotiated(stage.tools.openssl, running.port)
        if self.http2:
            return check_responses(stage.tools.h2load, self.http2, running.port)
        connection = self.connection(running.port)
        try:
            connection.connect()
            first = connection.sock
            request(connection)  # a limit of one may still grant this request
            status, body = request(connection)
            if connection.sock is not first:
                raise MeasurementError("it closes connections")
        except (OSError, http.client.HTTPException) as error:
            raise MeasurementError(f"no response: {error!r}") from None
        finally:
            connection.close()
        if status != self.status:
            raise MeasurementError(f"it responds with {status} where {self.status} is expected: {body[:80]!r}")
        if status == 200 and len(body) != BODY:
            raise MeasurementError(f"it responds with {len(body)} bytes where {BODY} are expected")

    def connection(self, port: int) -> http.client.HTTPConnection:
        if self.tls:
            return http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=insecure_context())
        return http.client.HTTPConnection("127.0.0.1", port, timeout=5)


def request(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
    connection.request("GET", "/", headers={"X-Client": "client-000001"})
    response = connection.getresponse()
    return response.status, response.read()
