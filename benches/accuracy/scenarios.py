"""The four measurements of a product: with several instances, at a window's end, during a failover, and the announced wait."""

from __future__ import annotations

import copy
import http.client
import re
import time
from dataclasses import dataclass, field

from process import MeasurementError
from product import MINUTE, SECOND, Answer, Law, Product, WaitErrors
from sender import Sender, Sent, failed, fullest, granted
from stage import Stage

INSTANCES = (1, 2, 4)
RATE = 1_000
STEADY_SECONDS = 3
# A client that knows when a window ends: it sends one request at the start of a wall-clock second, and all others from
# shortly before its end. The window of a product that starts with the first request ends then, too.
LEAD_SECONDS, END_SECONDS = 0.15, 1.2
FAILOVER_RATE, FAILOVER_SECONDS, FAILS_AFTER = 500, 8, 2.0
# The assumed outage of simulated products.
OUTAGE_SECONDS = 1.5
# Half of the permits, a pause, the other half, and then rejected requests whose waits count.
PAUSE_SECONDS = 5.0
WAITS, WAITS_APART = 10, 0.1
STEP = 0.02
# The clocks of limiters have milliseconds: two permits of times that are one second apart can be 1 ms closer.
WINDOW = SECOND.seconds - 0.001


@dataclass
class Result:
    """What was measured. `fullest` and `totals` are by the number of instances. A missing value is None."""

    product: Product
    fullest: dict[int, int] = field(default_factory=dict)
    totals: dict[int, int] = field(default_factory=dict)
    at_end: int | None = None
    failover: int | None = None
    errors: int | None = None
    wait_errors: WaitErrors = field(default_factory=list)
    # How long the requests of `STEADY_SECONDS` took: longer on a machine that is too busy.
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)

    def over(self, value: int | None) -> int | None:
        return None if value is None else max(0, value - SECOND.rate)


def steady_times() -> list[float]:
    return [number / RATE for number in range(RATE * STEADY_SECONDS)]


def end_times() -> list[float]:
    begin = 1 - LEAD_SECONDS
    return [0.0, *(begin + number / RATE for number in range(round(RATE * END_SECONDS)))]


def failover_times() -> list[float]:
    return [number / FAILOVER_RATE for number in range(FAILOVER_RATE * FAILOVER_SECONDS)]


def measure(stage: Stage, product: Product) -> Result:
    """Measures a product that can run here, except its announced wait."""
    result = Result(product)
    if reason := product.missing(stage):
        result.failures.append(reason)
        return result
    assert product.start
    for number in INSTANCES:
        with recorded(result, f"{number} instances"), stage.scene():
            fleet = product.start(stage, SECOND, number)
            sent = Sender(fleet.ports).run(steady_times(), after_wall_clock(0.5))
            result.fullest[number] = fullest(granted(sent), WINDOW)
            begin = min(one.begin for one in sent)
            result.totals[number] = sum(end < begin + STEADY_SECONDS for _, end in granted(sent))
            result.slowest = max(result.slowest, max(one.end for one in sent) - begin)
    with recorded(result, "the end of a window"), stage.scene():
        fleet = product.start(stage, SECOND, 1)
        sent = Sender(fleet.ports).run(end_times(), after_wall_clock(0.02))
        result.at_end = fullest(granted(sent), WINDOW)
    if product.fail:
        with recorded(result, "the failover"), stage.scene():
            fleet = product.fail(stage, SECOND, 2)
            events = [(FAILS_AFTER, fleet.fail_store)]
            sent = Sender(fleet.ports).run(failover_times(), time.monotonic() + 0.5, events)
            result.failover, result.errors = fullest(granted(sent), WINDOW), failed(sent)
    return result


class recorded:
    """Records the failure of a measurement, so that the others continue."""

    def __init__(self, result: Result, what: str):
        self.result, self.what = result, what

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, (MeasurementError, OSError)):
            return False
        self.result.failures.append(f"{self.what}: {error}")
        return True


def after_wall_clock(phase: float) -> float:
    """Returns the next monotonic time, at least 0.5 s from now, at which the fraction of the wall clock is `phase`."""
    return time.monotonic() + 0.5 + (phase - time.time() - 0.5) % 1


def simulate(product: Product) -> Result:
    """Applies the law of a product in virtual time, from a whole second on."""
    result = Result(product)
    assert product.simulate
    for number in INSTANCES:
        spans = [at for at, answer in apply(product.simulate(SECOND, number), steady_times(), number, 0.5) if answer.granted]
        result.fullest[number], result.totals[number] = fullest([(at, at) for at in spans], WINDOW), len(spans)
    at_end = apply(product.simulate(SECOND, 1), end_times(), 1, 0.02)
    result.at_end = fullest([(at, at) for at, answer in at_end if answer.granted], WINDOW)
    if product.has_store:
        law = product.simulate(SECOND, 2)
        outage = (FAILS_AFTER, FAILS_AFTER + OUTAGE_SECONDS)
        answers = apply(law, failover_times(), 2, 0.0, outage)
        result.failover = fullest([(at, at) for at, answer in answers if answer.granted], WINDOW)
        result.errors = sum(answer.failed for _, answer in answers)
    result.wait_errors = simulate_wait(product)
    return result


def apply(
    law: Law, times: list[float], instances: int, phase: float, outage: tuple[float, float] = (0.0, 0.0)
) -> list[tuple[float, Answer]]:
    start, answers = 1_000 + phase, []
    for number, at in enumerate(times):
        law.set_store(not outage[0] <= at < outage[1])
        answers.append((start + at, law.take(start + at, number % instances)))
    return answers


def simulate_wait(product: Product) -> WaitErrors:
    assert product.simulate
    law, now = product.simulate(MINUTE, 1), 1_000.0
    for _ in range(2):
        for number in range(MINUTE.rate // 2):
            law.take(now + number / RATE, 0)
        now += PAUSE_SECONDS
    while (answer := law.take(now, 0)).granted:  # a leaky limiter has permits again
        now += 1 / RATE
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


def measure_wait(stage: Stage, product: Product) -> WaitErrors:
    """Measures with an error of one step. Takes up to 75 s."""
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
    granted_at = time_of_grant(connection, product.header)
    return [wait - (granted_at - at) for at, wait in announced]


def time_of_grant(connection: http.client.HTTPConnection, header: str) -> float:
    end = time.monotonic() + 1.5 * MINUTE.seconds
    while True:
        begin = time.monotonic()
        if ask(connection, header)[0] == 200:
            return begin
        if begin > end:
            raise MeasurementError("no request passes again")
        time.sleep(STEP)


def ask(connection: http.client.HTTPConnection, header: str) -> tuple[int, float | None]:
    connection.request("GET", "/")
    response = connection.getresponse()
    response.read()
    found = re.search(r"[0-9.]+", response.headers.get(header, ""))
    return response.status, float(found[0]) if found else None
