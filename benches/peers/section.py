"""The results in the form that the terminal, the page and the charts show: a table, bars and goals."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The minimum, the median and the maximum of several measurements."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(min(values), statistics.median(values), max(values))

    def cells(self, digits: int) -> list[str]:
        return [f"{value:,.{digits}f}" for value in (self.least, self.median, self.most)]


@dataclass(frozen=True)
class Line:
    """A contestant of a table: its cells, or the reason of its failure. `config` is its file in config/."""

    name: str
    config: str
    cells: list[str]
    failure: str | None = None


@dataclass(frozen=True)
class Bar:
    """A contestant of a chart. `parts` are the medians of the processes, if there are several."""

    name: str
    spread: Spread
    parts: dict[str, float]


@dataclass(frozen=True)
class Verdict:
    """The result of a goal. `met` is None if it could not be measured."""

    goal: str
    measured: str
    met: bool | None


@dataclass(frozen=True)
class Section:
    """One row of the comparison. `unit` is the unit of the bars."""

    name: str
    title: str
    about: str
    columns: list[str]
    lines: list[Line]
    verdicts: list[Verdict]
    unit: str
    bars: list[Bar]
