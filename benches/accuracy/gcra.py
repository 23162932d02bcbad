"""The generic cell rate algorithm, which several products have."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from product import Answer, Limit


@dataclass
class Gcra:
    """A bucket of `limit.rate` permits that are refilled evenly. `is_shared`: all instances ask one server. The wait is in
    whole seconds, rounded down."""

    limit: Limit
    is_shared: bool
    full_at: dict[int, float] = field(default_factory=dict)

    def set_store(self, is_up: bool) -> None: ...

    def take(self, now: float, instance: int) -> Answer:
        key, period = 0 if self.is_shared else instance, self.limit.seconds / self.limit.rate
        full_at = max(now, self.full_at.get(key, now))
        allowed_at = full_at - period * (self.limit.rate - 1)
        if now < allowed_at - 1e-9:
            return Answer(False, math.floor(allowed_at - now))
        self.full_at[key] = full_at + period
        return Answer(True)
