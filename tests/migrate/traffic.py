"""Sends the same requests, at the same times, to two gateways."""

from __future__ import annotations

import http.client
import threading
import time
from dataclasses import dataclass

from setup import Late

# The longest delay of a request. The schedules leave this time to the next moment at which a permit returns.
TOLERANCE = 0.3
RESPONSE_TIMEOUT = 10


@dataclass(frozen=True)
class Burst:
    """Requests to send at once, `at` seconds after the first burst, from an address of the loopback interface."""

    at: float
    count: int
    client: str = "127.0.0.2"


@dataclass(frozen=True)
class Response:
    status: int
    seconds: float
    retry_after: str | None


def ask(port: int, path: str, client: str = "127.0.0.2", host: str = "api.example.com") -> Response:
    """Sends a request over a new connection."""
    begin = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, RESPONSE_TIMEOUT, source_address=(client, 0))
    try:
        connection.request("GET", path, headers={"Host": host})
        response = connection.getresponse()
        response.read()
        return Response(response.status, time.monotonic() - begin, response.getheader("Retry-After"))
    finally:
        connection.close()


def statuses(ports: tuple[int, int], path: str, *bursts: Burst) -> list[list[list[int]]]:
    """Sends bursts of sequential requests to two gateways. Returns the statuses of each burst, for each gateway."""
    result: list[list[list[int]]] = [[], []]
    start = time.monotonic()
    for burst in bursts:
        time.sleep(max(0.0, start + burst.at - time.monotonic()))
        received: list[list[int]] = [[], []]
        for _ in range(burst.count):
            for port, statuses_of_gateway in zip(ports, received):
                statuses_of_gateway.append(ask(port, path, burst.client).status)
        late = time.monotonic() - start - burst.at
        if late > TOLERANCE:
            raise Late(f"the burst at {burst.at} s ended {late:.1f} s late")
        for burst_statuses, statuses_of_gateway in zip(result, received):
            burst_statuses.append(statuses_of_gateway)
    return result


def at_once(port: int, path: str, count: int) -> list[Response]:
    """Sends requests at the same time. Returns the responses in the order in which they arrived."""
    responses: list[Response] = []
    threads = [threading.Thread(target=lambda: responses.append(ask(port, path))) for _ in range(count)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    if time.monotonic() - begin > TOLERANCE:
        raise Late("the requests were not sent at once")
    for thread in threads:
        thread.join()
    return responses
