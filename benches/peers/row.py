"""Rows of the table: who is compared, and what is to come out."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Callable

from contestant import Contestant
from load import Slice


@dataclass(frozen=True)
class Goal:
    """A ratio of two contestants' medians: at most (of costs) or at least (of rates) what was aimed for."""

    of: str
    to: str
    at_most: float | None = None
    at_least: float | None = None

    def ratio(self, results: dict[str, Result]) -> float | None:
        """None if one of the two has no result."""
        of, to = results.get(self.of), results.get(self.to)
        if not of or not to or not of.slices or not to.slices:
            return None
        if self.at_least is not None:
            return of.rate.median / to.rate.median
        return of.cost.median / to.cost.median

    def is_met(self, ratio: float) -> bool:
        if self.at_least is not None:
            return ratio >= self.at_least
        return self.at_most is None or ratio <= self.at_most

    def __str__(self) -> str:
        if self.at_least is not None:
            return f"requests/s at least {self.at_least:.2f} x {self.to}"
        return f"CPU per request at most {self.at_most:.2f} x {self.to}"


@dataclass(frozen=True)
class Spread:
    """The least, the median and the most of several measurements."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(min(values), statistics.median(values), max(values))


@dataclass
class Result:
    """What was measured of a contestant; `failure` says why it is not whole."""

    name: str
    config: str
    slices: list[Slice] = field(default_factory=list)
    failure: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def cost(self) -> Spread:
        """CPU time for each request, in microseconds."""
        return Spread.of([one.cost for one in self.slices])

    @property
    def rate(self) -> Spread:
        """Requests for each second."""
        return Spread.of([one.rate for one in self.slices])

    @property
    def processes(self) -> dict[str, float]:
        """The median cost of each of the processes, in microseconds."""
        names = self.slices[0].cpu if self.slices else {}
        return {name: statistics.median(one.cost_of(name) for one in self.slices) for name in names}


@dataclass(frozen=True)
class Row:
    """Contestants that are loaded in turns."""

    name: str
    title: str
    about: str
    contestants: list[Contestant]
    goals: list[Goal]


@dataclass
class Verdict:
    """What became of a goal; no ratio if it could not be measured."""

    text: str
    ratio: str | None
    met: bool | None


@dataclass
class Measured:
    """A row and its results, in the order of its contestants."""

    row: Row
    results: list[Result]

    def verdicts(self) -> list[Verdict]:
        by_name = {result.name: result for result in self.results}
        told = []
        for goal in self.row.goals:
            ratio = goal.ratio(by_name)
            met = None if ratio is None else goal.is_met(ratio)
            told.append(Verdict(str(goal), None if ratio is None else f"{ratio:.2f}", met))
        return told


Progress = Callable[[str], None]
