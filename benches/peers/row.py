"""Rows that are measured under full load: their contestants, goals and results."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Callable

from contestant import Contestant
from load import Slice
from paired import Paired
from section import Bar, Line, Section, Spread, Verdict
from stage import Stage


# A bound this close to 1 needs more rounds: slices of one contestant differ by more.
CLOSE = 0.1 + 1e-9


@dataclass
class Result:
    """The slices of a contestant, or the reason of its failure."""

    contestant: Contestant
    slices: list[Slice] = field(default_factory=list)
    failure: str | None = None

    @property
    def cost(self) -> Spread:
        """CPU time per request, in microseconds."""
        return Spread.of([one.cost for one in self.slices])

    @property
    def rate(self) -> Spread:
        """Requests per second."""
        return Spread.of([one.rate for one in self.slices])

    @property
    def parts(self) -> dict[str, float]:
        """The median cost of each process, in microseconds."""
        names = self.slices[0].cpu if self.slices else {}
        return {name: statistics.median(one.cost_of(name) for one in self.slices) for name in names}

    @property
    def calls(self) -> int:
        return sum(one.calls for one in self.slices)

    @property
    def calls_per_second(self) -> float:
        """Script calls per second, without the first call of each slice, which finds nothing in the negative cache."""
        return sum(max(0, one.calls - 1) for one in self.slices) / sum(one.seconds for one in self.slices)


Results = dict[str, Result]


def costs(of: Result, to: Result) -> Paired:
    return Paired.of(one.cost / other.cost for one, other in zip(of.slices, to.slices))


def rates(of: Result, to: Result) -> Paired:
    return Paired.of(one.rate / other.rate for one, other in zip(of.slices, to.slices))


def show(ratio: Paired) -> str:
    return f"{ratio.median:.2f} ± {ratio.error:.2f} x"


@dataclass(frozen=True)
class AtMost:
    """A goal: the CPU time per request, or per `each`, of `of`, relative to that of `to`."""

    of: str
    to: str
    bound: float
    each: str = "request"

    def is_close(self) -> bool:
        return abs(self.bound - 1) <= CLOSE

    def ratio(self, results: Results) -> Paired:
        return costs(results[self.of], results[self.to])

    def verdict(self, results: Results) -> Verdict:
        goal = f"CPU per {self.each} of {self.of}: at most {self.bound:.2f} x {self.to}"
        if results[self.of].failure or results[self.to].failure:
            return Verdict(goal, "nothing", None)
        ratio = self.ratio(results)
        return Verdict(goal, show(ratio), ratio.median <= self.bound)


@dataclass(frozen=True)
class AtMostOfAny:
    """A goal: the CPU time per request of `of`, relative to the least of `to`, which are several configurations of one
    peer."""

    of: str
    to: tuple[str, ...]
    bound: float

    def verdict(self, results: Results) -> Verdict:
        peers = " or ".join(self.to)
        goal = f"CPU per request of {self.of}: at most {self.bound:.2f} x {peers}, whichever is less"
        of, to = results[self.of], [results[name] for name in self.to]
        if of.failure or any(one.failure for one in to):
            return Verdict(goal, "nothing", None)
        ratio = max(costs(of, one).median for one in to)
        return Verdict(goal, f"{ratio:.3f} x", ratio <= self.bound)


@dataclass(frozen=True)
class Faster:
    """A goal: the requests per second of `of`, relative to those of `to`."""

    of: str
    to: str
    bound: float

    def is_close(self) -> bool:
        """Always true: the elapsed time also includes the time that other programs use the processors."""
        return True

    def ratio(self, results: Results) -> Paired:
        return rates(results[self.of], results[self.to])

    def verdict(self, results: Results) -> Verdict:
        goal = f"requests/s of {self.of}: at least {self.bound:.2f} x {self.to}"
        if results[self.of].failure or results[self.to].failure:
            return Verdict(goal, "nothing", None)
        ratio = self.ratio(results)
        return Verdict(goal, show(ratio), ratio.median >= self.bound)


@dataclass(frozen=True)
class FewScriptCalls:
    """A goal: how often the Redis of `of` runs a script for requests, per second."""

    of: str
    bound: float

    def verdict(self, results: Results) -> Verdict:
        goal = f"script calls of {self.of} after the first: at most {self.bound:.0f} per second, for its only bucket"
        of = results[self.of]
        if of.failure:
            return Verdict(goal, "nothing", None)
        return Verdict(goal, f"{of.calls_per_second:,.2f} per second", of.calls_per_second <= self.bound)


Goal = AtMost | AtMostOfAny | Faster | FewScriptCalls


@dataclass(frozen=True)
class Row:
    """Contestants that are loaded in turns. The ratios are relative to the first."""

    name: str
    title: str
    about: str
    contestants: list[Contestant]
    goals: list[Goal]
    # Starts another upstream, and returns its port.
    upstream: Callable[[Stage], int] | None = None
    # The unit of the load.
    each: str = "request"

    def unclear(self, results: Results) -> set[str]:
        """Returns the contestants that are too close to a goal for a clear verdict."""
        close = [goal for goal in self.goals if isinstance(goal, AtMost | Faster) and goal.is_close()]
        failed = {name for name, result in results.items() if result.failure}
        close = [goal for goal in close if not failed & {goal.of, goal.to}]
        return {name for goal in close if not goal.ratio(results).is_clear_of(goal.bound) for name in (goal.of, goal.to)}

    def section(self, results: Results) -> Section:
        columns = ["min", "median us", "max", "first / this", "min", f"median {self.each}s/s", "max", "of which"]
        first = results[self.contestants[0].name]
        done = [result for result in results.values() if not result.failure]
        return Section(
            name=self.name,
            title=self.title,
            about=self.about,
            columns=columns,
            lines=[line(result, first) for result in results.values()],
            verdicts=[goal.verdict(results) for goal in self.goals],
            unit=f"us of CPU per {self.each}",
            bars=[Bar(result.contestant.name, result.cost, result.parts) for result in done],
        )


def line(result: Result, first: Result) -> Line:
    contestant = result.contestant
    if result.failure:
        return Line(contestant.name, contestant.config, [], result.failure)
    ratio = "" if first.failure else f"{costs(first, result).median:.2f}"
    cells = [*result.cost.cells(1), ratio, *result.rate.cells(0), of_which(result)]
    return Line(contestant.name, contestant.config, cells)


def of_which(result: Result) -> str:
    """Returns the cost of each process if there are several, and the script calls per request."""
    if len(result.parts) < 2:
        return ""
    parts = [f"{name} {cost:.1f}" for name, cost in result.parts.items()]
    calls = result.calls / sum(one.requests for one in result.slices)
    return ", ".join([*parts, f"{calls:.3f} script calls"])
