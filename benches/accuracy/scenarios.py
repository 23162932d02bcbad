"""The measurements of a product: with several instances, at a window's end, and during a failover. waits.py has the others."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from process import MeasurementError
from product import SECOND, Answer, Law, Product, Start, WaitErrors
from sender import Sender, Sent, failed, fullest, granted
from stage import Stage
from waits import simulate_waits

INSTANCES = (1, 2, 4)
RATE = 1_000
STEADY_SECONDS = 3
# A client that knows when a window ends: it sends one request at the start of a wall-clock second, and all others from
# shortly before its end. The window of a product that starts with the first request ends then, too.
LEAD_SECONDS, END_SECONDS = 0.25, 1.2
FAILOVER_RATE, FAILOVER_SECONDS, FAILS_AFTER = 500, 8, 2.0
# If one of 100 requests is later than this, all are sent again, up to `TRIES` times.
LATE_SECONDS, TRIES = 0.06, 8
# The assumed outage of simulated products.
OUTAGE_SECONDS = 1.5
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
    for number in INSTANCES:
        with recorded(result, f"{number} instances"):
            sent = send(stage, product.start, number, steady_times(), 0.5)
            result.fullest[number] = fullest(granted(sent), WINDOW)
            result.totals[number] = len(granted(sent))
    with recorded(result, "the end of a window"):
        result.at_end = fullest(granted(send(stage, product.start, 1, end_times(), 0.02)), WINDOW)
    if product.fail:
        with recorded(result, "the failover"):
            sent = send(stage, product.fail, 2, failover_times(), 0.5)
            result.failover, result.errors = fullest(granted(sent), WINDOW), failed(sent)
    return result


def send(stage: Stage, start: Start | None, instances: int, times: list[float], phase: float) -> list[Sent]:
    """Starts a product and sends requests at these times, again if the machine was too busy for them."""
    assert start
    for _ in range(TRIES):
        with stage.scene():
            fleet = start(stage, SECOND, instances)
            events = [(FAILS_AFTER, fleet.fail_store)] if fleet.fail_store else []
            sender = Sender(fleet.ports)
            sent = sender.run(times, after_wall_clock(phase), events)
        if sender.delay() < LATE_SECONDS:
            return sent
    raise MeasurementError(f"the machine is too busy: requests are {sender.delay() * 1_000:.0f} ms late")


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
    result.wait_errors = simulate_waits(product)
    return result


def apply(
    law: Law, times: list[float], instances: int, phase: float, outage: tuple[float, float] = (0.0, 0.0)
) -> list[tuple[float, Answer]]:
    start, answers = 1_000 + phase, []
    for number, at in enumerate(times):
        law.set_store(not outage[0] <= at < outage[1])
        answers.append((start + at, law.take(start + at, number % instances)))
    return answers
