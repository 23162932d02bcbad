"""What a limit in Redis adds to the time of an answer, at half of full load and a constant rate."""

from __future__ import annotations

import json
import statistics
import subprocess
from dataclasses import dataclass, field
from typing import Callable

from contestant import Contestant, Running
from load import CONNECTIONS, load
from measure import start
from process import Command, Failed
from row import Result
from rows import ONE_LIMIT_ON_REDIS, TWO_LIMITS_ON_REDIS, UNLIMITED
from section import Bar, Line, Section, Spread, Verdict
from stage import Stage

NAME = "latency"
TITLE = "Latency that a limit in Redis adds"
ABOUT = (
    "Requests at a constant rate, half of what the gateway with one limit in Redis answers under full load just before, "
    "on as many connections as above: without limits, with one for all requests, and with that and one for each address; and at a "
    "quarter of it, where the processes leave each other more of the cores. A request "
    "that was due while its connection was still waiting is timed from when it was "
    "due. The round trip is that of a PING, once a millisecond, to a Redis that does nothing else, while the same "
    "requests pass without limits: a script that keeps Redis busy excuses nothing. What counts is what each round shows, "
    "the added time beside the round trip; the medians of all rounds are told."
)
COLUMNS = ["min", "median p50 us", "max", "min", "median p99 us", "max", "requests/s"]
ROUND_TRIP = "PING to Redis"
CALM = "a quarter"

# Above one and two round trips, in microseconds.
P50_ALLOWANCE, P99_ALLOWANCE = 100.0, 500.0


@dataclass(frozen=True)
class Quantiles:
    """Of one slice, in microseconds."""

    p50: float
    p99: float


Quantile = Callable[[Quantiles], float]


@dataclass
class Timings:
    """The slices of those who are timed, in the order of the rounds, and the rate in each round."""

    rates: list[int] = field(default_factory=list)
    without: list[Quantiles] = field(default_factory=list)
    limited: list[Quantiles] = field(default_factory=list)
    doubly: list[Quantiles] = field(default_factory=list)
    calm_without: list[Quantiles] = field(default_factory=list)
    calm_limited: list[Quantiles] = field(default_factory=list)
    pings: list[Quantiles] = field(default_factory=list)

    def added(self, quantile: Quantile, trips: int = 0) -> float:
        """The median of what the limit added in each round, beyond so many round trips of that round."""
        rounds = zip(self.without, self.limited, self.pings)
        beyond = (quantile(limited) - quantile(without) - trips * ping.p50 for without, limited, ping in rounds)
        return statistics.median(beyond)

    def noise(self, quantile: Quantile) -> float:
        """How far apart rounds without a limit are: the middle half of them."""
        values = [quantile(one) for one in self.without]
        lower, _, upper = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
        return upper - lower


def measure(stage: Stage, rounds: int, seconds: float, say: Callable[[str], None]) -> Section:
    """Times the gateway without and with limits in Redis, in turns."""
    contestants = [UNLIMITED, ONE_LIMIT_ON_REDIS, TWO_LIMITS_ON_REDIS]
    results = {contestant.name: Result(contestant) for contestant in contestants}
    timings = Timings()
    try:
        with stage.scene():
            running = [running for _, running in start(stage, results)]
            if failed := [result.failure for result in results.values() if result.failure]:
                raise Failed(failed[0])
            half_load(stage, running[1])  # warms it up
            for number in range(rounds):
                say(f"{NAME}, round {number + 1} of {rounds}")
                timings.rates.append(half_load(stage, running[1]))
                one_round(stage, timings, running, seconds)
    except Failed as failure:
        lines = [Line(contestant.name, contestant.config, [], str(failure)) for contestant in contestants]
        return Section(NAME, TITLE, ABOUT, COLUMNS, lines, verdicts(None), "us, p50", [])
    return section(timings)


def half_load(stage: Stage, running: Running) -> int:
    """Half of the requests in a second that one limit in Redis answers under full load at present: a busy machine does
    not do the same all the time."""
    return round(load(stage.tools, ONE_LIMIT_ON_REDIS, running, 1.0).rate / 2)


def one_round(stage: Stage, timings: Timings, running: list[Running], seconds: float) -> None:
    rate = timings.rates[-1]
    without, limited, doubly = running
    assert limited.redis and doubly.redis
    subjects = [
        (without, limited.redis.port, rate // 2, timings.calm_without),
        (limited, limited.redis.port, rate // 2, timings.calm_limited),
        (without, limited.redis.port, rate, timings.without),
        (doubly, doubly.redis.port, rate, timings.doubly),
        (limited, limited.redis.port, rate, timings.limited),
    ]
    for one, redis, at, times in subjects:
        told = pace(stage, one.port, at, seconds, redis)
        times.append(Quantiles(told["http"]["p50"], told["http"]["p99"]))
        if times is timings.without:
            timings.pings.append(Quantiles(told["redis"]["p50"], told["redis"]["p99"]))


def pace(stage: Stage, port: int, rate: int, seconds: float, redis: int) -> dict[str, dict[str, float]]:
    """Runs pace.rs. An answer that is not 200 or does not come ends it."""
    command: Command = [stage.tools.pace, str(port), str(rate), str(max(1, round(seconds)))]
    command += [str(CONNECTIONS), str(redis)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Failed(f"at {rate} requests in a second: {done.stderr.strip()}")
    told: dict[str, dict[str, float]] = json.loads(done.stdout)
    return told


def section(timings: Timings) -> Section:
    rate = round(statistics.median(timings.rates))
    subjects = [
        (UNLIMITED.name, UNLIMITED.config, timings.without, rate),
        (ONE_LIMIT_ON_REDIS.name, ONE_LIMIT_ON_REDIS.config, timings.limited, rate),
        (TWO_LIMITS_ON_REDIS.name, TWO_LIMITS_ON_REDIS.config, timings.doubly, rate),
        (f"{UNLIMITED.name}, {CALM}", UNLIMITED.config, timings.calm_without, rate // 2),
        (f"{ONE_LIMIT_ON_REDIS.name}, {CALM}", ONE_LIMIT_ON_REDIS.config, timings.calm_limited, rate // 2),
    ]
    lines = [Line(name, config, [*cells(times), f"{at:,}"]) for name, config, times, at in subjects]
    lines.append(Line(ROUND_TRIP, "", [*cells(timings.pings), ""]))
    named = [(name, times) for name, _, times, _ in subjects] + [(ROUND_TRIP, timings.pings)]
    bars = [Bar(name, Spread.of([each.p50 for each in times]), {}) for name, times in named]
    unit = "us until half of the requests are answered"
    return Section(NAME, TITLE, ABOUT, COLUMNS, lines, verdicts(timings), unit, bars)


def cells(times: list[Quantiles]) -> list[str]:
    p50, p99 = Spread.of([each.p50 for each in times]), Spread.of([each.p99 for each in times])
    return [*p50.cells(0), *p99.cells(0)]


def verdicts(timings: Timings | None) -> list[Verdict]:
    return [
        verdict(timings, "p50", lambda one: one.p50, 1, P50_ALLOWANCE),
        verdict(timings, "p99", lambda one: one.p99, 2, P99_ALLOWANCE),
    ]


def verdict(timings: Timings | None, name: str, quantile: Quantile, trips: int, allowance: float) -> Verdict:
    """Nothing is said of a difference that is smaller than what the machine does to a gateway without limits."""
    goal = f"added to the {name} by one limit: at most {trips} round trip{'s' * (trips > 1)} and {allowance / 1000:.1f} ms"
    if not timings:
        return Verdict(goal, "nothing", None)
    added, beyond = timings.added(quantile), timings.added(quantile, trips)
    measured = f"{added:,.0f} us, {beyond:,.0f} us of them beyond the round trip{'s' * (trips > 1)}"
    if (noise := timings.noise(quantile)) > allowance:
        return Verdict(goal, f"{measured}; but without limits, rounds differ by {noise:,.0f} us", None)
    return Verdict(goal, measured, beyond <= allowance)
