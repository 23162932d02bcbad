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
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class LargeBody:
    """The body of each response, or of each request if `is_upload`. The load counts MiB of bodies, not requests."""

    size: int
    is_upload: bool = False

    @property
    def path(self) -> str:
        return "/upload" if self.is_upload else f"/bodies/{self.size}"

    @property
    def connections(self) -> int:
        """Fewer than for small bodies, so that a slice of a second has enough complete requests."""
        return 64 if self.size < MIB else max(4, 16 * MIB // self.size)


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
    `handshakes_only`, the load is TLS handshakes without requests. With `large`, requests or responses have larger
    bodies. With `new_connections`, each request has its own connection. `fields` are header fields of each request. With
    `post`, requests have this body, and responses any length. `connections` replaces the usual number of connections."""

    name: str
    packages: tuple[str, ...]
    config: str
    start: Callable[[Stage], Running]
    status: int = 200
    clients: int = 0
    http2: Http2 | None = None
    tls: bool = False
    handshakes_only: bool = False
    large: LargeBody | None = None
    new_connections: bool = False
    target: str = "/"
    fields: tuple[tuple[str, str], ...] = ()
    post: str = ""
    connections: int | None = None

    @property
    def path(self) -> str:
        return self.large.path if self.large else self.target

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
            request(connection, self)  # a limit of one may still grant this request
            status, body = request(connection, self)
            if connection.sock is not first:
                raise MeasurementError("it closes connections")
        except (OSError, http.client.HTTPException) as error:
            raise MeasurementError(f"no response: {error!r}") from None
        finally:
            connection.close()
        if status != self.status:
            raise MeasurementError(f"it responds with {status} where {self.status} is expected: {body[:80]!r}")
        size = self.large.size if self.large and not self.large.is_upload else BODY
        if status == 200 and not self.post and len(body) != size:
            raise MeasurementError(f"it responds with {len(body)} bytes where {size} are expected")

    def connection(self, port: int) -> http.client.HTTPConnection:
        if self.tls:
            return http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=insecure_context())
        return http.client.HTTPConnection("127.0.0.1", port, timeout=5)


def request(connection: http.client.HTTPConnection, contestant: Contestant) -> tuple[int, bytes]:
    is_upload = contestant.large and contestant.large.is_upload
    body = bytes(contestant.large.size) if contestant.large and is_upload else contestant.post.encode() or None
    fields = {"X-Client": "client-000001", **dict(contestant.fields)}
    connection.request("POST" if body else "GET", contestant.path, body, fields)
    response = connection.getresponse()
    return response.status, response.read()
