"""Measures the latency that a limit in Redis adds, at a constant rate."""

from __future__ import annotations

import json
import statistics
import subprocess
from dataclasses import dataclass, field
from typing import Callable

from awake import awake
from contestant import Running
from load import CONNECTIONS, load
from measure import Rounds
from paired import Paired
from process import Command, MeasurementError, free_port
from rows import ONE_LIMIT_ON_REDIS, TWO_LIMITS_ON_REDIS, UNLIMITED
from section import Bar, Line, Section, Spread, Verdict
from stage import Stage

NAME = "latency"
TITLE = "Latency that a limit in Redis adds"
ABOUT = (
    "Requests arrive at a constant rate: half and a quarter of the throughput that the gateway with one limit in "
    "Redis reached under full load just before. They use as many connections as above, without limits, with one limit "
    "for all requests, and in every fourth round also with a second limit per address. The first half second of each "
    "slice, in which the gateway opens its upstream connections, is not counted. In production, load and upstream run "
    "on other machines, so each of them is a single thread here. The cores are kept awake (/dev/cpu_dma_latency), "
    "because waking a core takes longer than the measured times, above all in a virtual machine. The table also has "
    "results with sleeping cores. The time of a request starts when it was due, even if its connection was still "
    "waiting for a response. A round trip is a PING, once a millisecond, to a Redis without other load, during the "
    "slice without limits; so a slow script does not raise the goal. The round with the shortest round trips counts. "
    "The latency that a limit adds is the median over the rounds. If it is within three standard errors (±) of its "
    "goal, or the error exceeds half of the allowance above round trips, more rounds follow. A result that stays "
    "unclear is reported as not measured."
)
COLUMNS = ["min", "median p50 us", "max", "min", "median p99 us", "max", "requests/s"]

# Every fourth round also measures two limits, and cores that may sleep.
WHOLE_ROUND_EVERY = 4


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of one slice, in microseconds."""

    p50: float
    p99: float


Quantile = Callable[[Quantiles], float]


@dataclass(frozen=True)
class Goal:
    """The latency that one limit may add to a quantile: a number of round trips plus some microseconds."""

    name: str
    quantile: Quantile
    trips: int
    allowance: float

    def is_too_noisy(self, added: Paired) -> bool:
        """Returns whether the rounds differ too much for a verdict."""
        return 2 * added.error > self.allowance

    def __str__(self) -> str:
        return f"at most {self.trips} round trip{'s' * (self.trips > 1)} and {self.allowance / 1000:.1f} ms"


GOALS = [Goal("p50", lambda times: times.p50, 1, 100.0), Goal("p99", lambda times: times.p99, 2, 500.0)]


@dataclass
class Timings:
    """The slices at one share of full load, in the order of the rounds."""

    share: str
    rates: list[int] = field(default_factory=list)
    without: list[Quantiles] = field(default_factory=list)
    limited: list[Quantiles] = field(default_factory=list)
    twice_limited: list[Quantiles] = field(default_factory=list)
    pings: list[Quantiles] = field(default_factory=list)

    def added(self, quantile: Quantile) -> Paired:
        """Returns the latency that the limit added."""
        pairs = zip(self.without, self.limited)
        return Paired.of(quantile(limited) - quantile(without) for without, limited in pairs)

    def round_trip(self) -> float:
        """Returns the shortest round trip of all rounds: a long round trip on a busy machine would excuse any
        latency."""
        return min(ping.p50 for ping in self.pings)

    def allowed(self, trips: int, allowance: float) -> float:
        """Returns the latency that a limit may add."""
        return trips * self.round_trip() + allowance

    def is_clear(self) -> bool:
        """Returns whether there is a clear verdict on each goal."""
        added = [(goal, self.added(goal.quantile)) for goal in GOALS]
        return all(
            one.is_clear_of(self.allowed(goal.trips, goal.allowance)) and not goal.is_too_noisy(one)
            for goal, one in added
        )

    def subjects(self) -> list[tuple[str, str, list[Quantiles]]]:
        """Returns the measured contestants: name, file in config/, and slices."""
        named = [(UNLIMITED, self.without), (ONE_LIMIT_ON_REDIS, self.limited)]
        named.append((TWO_LIMITS_ON_REDIS, self.twice_limited))
        subjects = [(f"{one.name}, {self.share}", one.config, times) for one, times in named]
        return [subject for subject in [*subjects, (f"PING to Redis, {self.share}", "", self.pings)] if subject[2]]


def measure(stage: Stage, rounds: Rounds, seconds: float, say: Callable[[str], None]) -> Section:
    """Measures the gateway without and with limits in Redis, in turns, until there is a clear verdict on the goals."""
    contestants = [UNLIMITED, ONE_LIMIT_ON_REDIS, TWO_LIMITS_ON_REDIS]  # the first two are compared
    half, quarter, asleep = Timings("half"), Timings("quarter"), Timings("half, sleeping cores")
    try:
        with stage.scene():
            loaded, upstream = ONE_LIMIT_ON_REDIS.start(stage), free_port()
            with stage.upstream_at(upstream):
                running = [contestant.start(stage) for contestant in contestants]
            full_load(stage, loaded)  # warms it up
            for number in range(rounds.of_all + rounds.of_unclear):
                timed = [one for one in (quarter, half) if number < rounds.of_all or not one.is_clear()]
                if not timed:
                    break
                say(f"{NAME}, round {number + 1}")
                full = full_load(stage, loaded)
                is_whole = number < rounds.of_all and number % WHOLE_ROUND_EVERY == 0
                with awake():
                    for one in timed:
                        rate = round(full / (4 if one is quarter else 2))
                        one_round(stage, one, rate, running if is_whole else running[:2], upstream, seconds)
                if is_whole:
                    one_round(stage, asleep, round(full / 2), running[:2], upstream, seconds)
    except MeasurementError as failure:
        lines = [Line(contestant.name, contestant.config, [], str(failure)) for contestant in contestants]
        return Section(NAME, TITLE, ABOUT, COLUMNS, lines, verdicts([half]), "us, p50", [])
    return section([half, quarter], asleep)


def full_load(stage: Stage, running: Running) -> float:
    """Returns the requests per second with one limit in Redis under full load. Measured before each round, because the
    speed of a busy machine changes."""
    return load(stage.tools, ONE_LIMIT_ON_REDIS, running, 1.0).rate


def one_round(
    stage: Stage, timings: Timings, rate: int, running: list[Running], upstream: int, seconds: float
) -> None:
    """Measures these at one rate. Measures the round trip during the slice without limits."""
    timings.rates.append(rate)
    without, limited, *_ = running
    for one, times in zip(running, [timings.without, timings.limited, timings.twice_limited]):
        result = pace(stage, one, rate, seconds, upstream, limited if one is without else None)
        times.append(Quantiles(result["http"]["p50"], result["http"]["p99"]))
        if one is without:
            timings.pings.append(Quantiles(result["redis"]["p50"], result["redis"]["p99"]))


def pace(
    stage: Stage, one: Running, rate: int, seconds: float, upstream: int, pinged: Running | None
) -> dict[str, dict[str, float]]:
    """Runs benches/peers/pace. Fails if a response is not a 200 or does not arrive."""
    command: Command = [stage.tools.pace, str(one.port), str(rate), str(max(1, round(seconds)))]
    command += [str(CONNECTIONS), str(upstream)]
    if pinged and pinged.redis:
        command.append(str(pinged.redis.port))
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise MeasurementError(f"at {rate} requests per second: {done.stderr.strip()}")
    result: dict[str, dict[str, float]] = json.loads(done.stdout)
    return result


def section(loads: list[Timings], asleep: Timings) -> Section:
    """Creates the section. Goals apply to `loads` only, not to the results with sleeping cores."""
    timings = [*loads, asleep]
    subjects = [(*subject, round(statistics.median(one.rates))) for one in timings for subject in one.subjects()]
    lines = [Line(name, config, [*cells(times), f"{rate:,}"]) for name, config, times, rate in subjects]
    bars = [Bar(name, Spread.of([each.p50 for each in times]), {}) for name, _, times, _ in subjects]
    unit = "median response time, us"
    return Section(NAME, TITLE, ABOUT, COLUMNS, lines, verdicts(loads), unit, bars)


def cells(times: list[Quantiles]) -> list[str]:
    p50, p99 = Spread.of([each.p50 for each in times]), Spread.of([each.p99 for each in times])
    return [*p50.cells(0), *p99.cells(0)]


def verdicts(loads: list[Timings]) -> list[Verdict]:
    return [verdict(one, goal) for one in loads for goal in GOALS]


def verdict(timings: Timings, goal: Goal) -> Verdict:
    """Compares the added latency with the goal. Without a verdict if the rounds differ too much."""
    description = f"added to the {goal.name} by one limit, {timings.share} of full load: {goal}"
    if not timings.limited:
        return Verdict(description, "nothing", None)
    added, allowed = timings.added(goal.quantile), timings.allowed(goal.trips, goal.allowance)
    measured = f"{added.median:,.0f} ± {added.error:,.0f} us of {allowed:,.0f} us allowed"
    met = None if goal.is_too_noisy(added) else added.median <= allowed
    return Verdict(description, measured, met)
