"""What was measured, in the one form that the terminal, the page and the charts show: a table, bars and goals."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The least, the median and the most of several measurements."""

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
    """A contestant of a table: its cells, or why it has none. `config` is its file in config/."""

    name: str
    config: str
    cells: list[str]
    failure: str | None = None


@dataclass(frozen=True)
class Bar:
    """A contestant of a chart; `parts` are the medians of what the bar is made of, if of several."""

    name: str
    spread: Spread
    parts: dict[str, float]


@dataclass(frozen=True)
class Verdict:
    """What became of a goal. `met` is None if it could not be measured."""

    goal: str
    measured: str
    met: bool | None


@dataclass(frozen=True)
class Section:
    """One row of the comparison. `unit` is that of the bars."""

    name: str
    title: str
    about: str
    columns: list[str]
    lines: list[Line]
    verdicts: list[Verdict]
    unit: str
    bars: list[Bar]
