"""Counts the requests that a limit grants within a second when the demand is far higher."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from client import Client
from contestant import Contestant
from gateways import tidegate_on_redis
from process import MeasurementError
from ratelimit import envoy_with_ratelimit
from rows import PLENTY, SERVICE, TIDEGATE
from section import Bar, Line, Section, Spread, Verdict
from stage import Stage

NAME = "accuracy"
TITLE = "Requests granted by a limit of 100 per second"
LIMIT, RATE = 100, 1_000

# A fixed window per wall-clock second grants the whole limit at the end of a second and again at the start of the next.
# A client can choose its times, so the requests start this long before a second ends.
LEAD_SECONDS = 0.15
ABOUT = (
    f"A limit of {LIMIT} per second in Redis receives {RATE:,} requests per second at even intervals, from "
    f"{LEAD_SECONDS * 1000:.0f} ms before the end of a wall-clock second. The fullest second starts at any moment and "
    "has the most responses with 200. It is counted at the client, and by the store's clock in Tidegate's access log. "
    "Responses take different times to arrive, so the client may count slightly more."
)
COLUMNS = ["fullest second", "total", "requests", "seconds"]
LOG = "access.log"

OURS = Contestant(
    "tidegate",
    TIDEGATE,
    "tidegate_one_limit.yaml",
    tidegate_on_redis("tidegate_one_limit.yaml", RATE=LIMIT, LOG=f"@FOLDER@/{LOG}"),
)
THEIRS = Contestant("Envoy + ratelimit", SERVICE, "envoy_ratelimit.yaml", envoy_with_ratelimit(LIMIT, PLENTY))
STORE = "tidegate, by the store's clock"
GOAL = f"granted by tidegate in the fullest second by the store's clock: {LIMIT}"


@dataclass(frozen=True)
class Grants:
    """The times of granted requests, in milliseconds of one clock, and the number of requests."""

    times: list[float]
    requests: int

    def fullest(self) -> int:
        """Returns the most grants within a second. A grant one whole second later is outside of it."""
        first, most, times = 0, 0, sorted(self.times)
        for last, at in enumerate(times):
            while at - times[first] >= 1_000:
                first += 1
            most = max(most, last - first + 1)
        return most


def measure(stage: Stage, seconds: float, say: Callable[[str], None]) -> Section:
    """Measures one contestant after the other."""
    grants: dict[str, Grants] = {}
    failures: dict[str, str] = {}
    for contestant in (OURS, THEIRS):
        say(f"{NAME}: {contestant.name}")
        try:
            grants[f"{contestant.name}, as clients see it"] = grants_of(stage, contestant, seconds)
            if contestant is OURS:
                grants[STORE] = logged(stage.folder / LOG)
        except (MeasurementError, OSError) as failure:
            failures[contestant.name] = str(failure)
    return section(grants, failures, seconds)


def grants_of(stage: Stage, contestant: Contestant, seconds: float) -> Grants:
    """Loads a contestant and returns its grants. Stops it, so that its log is complete."""
    if reason := contestant.missing(stage):
        raise MeasurementError(reason)
    with stage.scene():
        running = contestant.start(stage)
        client = Client(running.port)
        client.run(RATE, seconds, LEAD_SECONDS)
    return Grants([at * 1_000 for at in client.granted], client.requests)


def logged(log: Path) -> Grants:
    """Reads the grants from an access log. Their times are the store's, in milliseconds."""
    lines = [line for line in log.read_text().splitlines() if " status=" in line]
    at = [re.search(r" at=(\d+) ", line) for line in lines if " status=200 " in line]
    return Grants([int(found[1]) for found in at if found], len(lines))


def section(grants: dict[str, Grants], failures: dict[str, str], seconds: float) -> Section:
    lines = [Line(name, config_of(name), cells(one, seconds)) for name, one in grants.items()]
    lines += [Line(name, config_of(name), [], failure) for name, failure in failures.items()]
    bars = [Bar(name, Spread.of([float(one.fullest())]), {}) for name, one in grants.items()]
    unit = "in the fullest second"
    return Section(NAME, TITLE, ABOUT, COLUMNS, lines, [verdict(grants)], unit, bars)


def config_of(name: str) -> str:
    return next(one.config for one in (OURS, THEIRS) if name.startswith(one.name))


def cells(grants: Grants, seconds: float) -> list[str]:
    return [f"{grants.fullest():,}", f"{len(grants.times):,}", f"{grants.requests:,}", f"{seconds:.0f}"]


def verdict(grants: dict[str, Grants]) -> Verdict:
    if STORE not in grants:
        return Verdict(GOAL, "nothing", None)
    fullest = grants[STORE].fullest()
    return Verdict(GOAL, f"{fullest:,}", fullest == LIMIT)
