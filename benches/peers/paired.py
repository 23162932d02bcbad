"""Two contestants compared round by round: in each round, the machine is as good to both."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Iterable

# So many standard errors from its bound, it is clear on which side of it a value is.
CLEAR = 3

# The standard error of a median of n values is this times their median absolute deviation over the root of n, where they
# are distributed normally.
ERROR_OF_MEDIAN = 1.2533 * 1.4826


@dataclass(frozen=True)
class Paired:
    """What comes out in each round, a ratio or a difference: the median of the rounds, and the standard error of that."""

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
