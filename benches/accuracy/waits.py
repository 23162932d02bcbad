"""The announced waits of a product, compared with the true ones."""

from __future__ import annotations

import copy
import http.client
import re
import time

from process import MeasurementError
from product import MINUTE, Law, Product, WaitErrors
from stage import Stage

# Half of the permits, a pause, the other half, and then rejected requests whose waits count.
PAUSE_SECONDS = 5.0
WAITS, WAITS_APART = 10, 0.1
STEP, MAX_GAP = 0.02, 0.08
# Between the simulated requests that take the permits.
APART = 0.001


def simulate_waits(product: Product) -> WaitErrors:
    assert product.simulate
    law, now = product.simulate(MINUTE, 1), 1_000.0
    for _ in range(2):
        for number in range(MINUTE.rate // 2):
            law.take(now + number * APART, 0)
        now += PAUSE_SECONDS
    while (answer := law.take(now, 0)).granted:  # a leaky limiter has permits again
        now += APART
    errors = []
    for number in range(WAITS):
        at = now + number * WAITS_APART
        before = copy.deepcopy(law)
        answer = law.take(at, 0)
        if not answer.granted and answer.wait is not None:
            errors.append(answer.wait - true_wait(before, at))
    return errors


def true_wait(law: Law, now: float) -> float:
    """Returns the wait after which the law grants a request, to the millisecond, if no other request comes."""
    rejected, granted_after = 0, 2 * MINUTE.seconds * 1_000
    while granted_after - rejected > 1:
        middle = (rejected + granted_after) // 2
        if copy.deepcopy(law).take(now + middle / 1_000, 0).granted:
            granted_after = middle
        else:
            rejected = middle
    return granted_after / 1_000


def measure_waits(stage: Stage, product: Product) -> WaitErrors:
    """Takes up to 75 s. A value is at most `MAX_GAP` too large."""
    if product.missing(stage):
        return []
    if product.wait:
        return product.wait(stage)
    if not product.header or not product.start:
        return []
    fleet = product.start(stage, MINUTE, 1)
    # All permits are taken within the same minute of the wall clock.
    if (left := 60 - time.time() % 60) < 4 * PAUSE_SECONDS:
        time.sleep(left + 0.1)
    connection = http.client.HTTPConnection("127.0.0.1", fleet.ports[0], timeout=5)
    for pause in (PAUSE_SECONDS, 0.3):
        for _ in range(MINUTE.rate // 2):
            ask(connection, product.header)
        time.sleep(pause)
    announced = []
    for _ in range(WAITS):
        begin, (status, wait) = time.monotonic(), ask(connection, product.header)
        if status != 429 or wait is None:
            raise MeasurementError(f"a request over the limit gets {status} with the wait {wait}")
        announced.append((begin, wait))
        time.sleep(WAITS_APART)
    rejected_at = last_rejection(connection, product.header)
    return [wait - (rejected_at - at) for at, wait in announced]


def last_rejection(connection: http.client.HTTPConnection, header: str) -> float:
    """Returns the begin of the last request that is rejected. A permit becomes available after it, and at most `MAX_GAP` later."""
    rejected_at, end = time.monotonic(), time.monotonic() + 1.5 * MINUTE.seconds
    while (begin := time.monotonic()) < end:
        if ask(connection, header)[0] == 200:
            if (gap := time.monotonic() - rejected_at) > MAX_GAP:
                raise MeasurementError(f"the machine is too busy: two requests are {gap:.2f} s apart")
            return rejected_at
        rejected_at = begin
        time.sleep(STEP)
    raise MeasurementError("no request passes again")


def ask(connection: http.client.HTTPConnection, header: str) -> tuple[int, float | None]:
    connection.request("GET", "/")
    response = connection.getresponse()
    response.read()
    found = re.search(r"[0-9.]+", response.headers.get(header, ""))
    return response.status, float(found[0]) if found else None
