"""Compares two contestants round by round: within a round, the speed of the machine is the same for both."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Iterable

# A value is clearly above or below its bound if it differs by this many standard errors.
CLEAR = 3

# For normally distributed values, the standard error of the median is this times their median absolute deviation,
# divided by the root of their number.
ERROR_OF_MEDIAN = 1.2533 * 1.4826


@dataclass(frozen=True)
class Paired:
    """A ratio or difference in each round: the median over the rounds, and its standard error."""

    median: float
    error: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Paired:
        values = list(values)
        median = statistics.median(values)
        deviation = statistics.median(abs(value - median) for value in values)
        return cls(median, ERROR_OF_MEDIAN * deviation / len(values) ** 0.5)

    def is_clear_of(self, bound: float) -> bool:
        return abs(self.median - bound) > CLEAR * self.error
