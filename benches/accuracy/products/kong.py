"""Kong's plugin rate-limiting."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from product import Answer, Limit, Product

# In seconds: how long after its check a request is counted. Kong counts in a timer, with a round trip to Redis.
DELAY = 0.005


@dataclass
class Calendar:
    """Counters of wall-clock windows: a request reads the counter, passes, and is counted later. With the policy `local`,
    each instance has its own counter, which counts at once."""

    limit: Limit
    is_local: bool
    is_up: bool = True
    counters: dict[tuple[int, int], int] = field(default_factory=dict)
    pending: list[tuple[float, tuple[int, int]]] = field(default_factory=list)

    def set_store(self, is_up: bool) -> None:
        self.is_up = is_up

    def take(self, now: float, instance: int) -> Answer:
        if not self.is_local and not self.is_up:
            return Answer(True)  # fault_tolerant, the default
        key = math.floor(now / self.limit.seconds), instance if self.is_local else 0
        self.count(now)
        if self.counters.get(key, 0) >= self.limit.rate:
            return Answer(False, max(1, self.limit.seconds - math.floor(now % self.limit.seconds)))
        self.pending.append((now if self.is_local else now + DELAY, key))
        return Answer(True)

    def count(self, now: float) -> None:
        for due, key in self.pending:
            if due <= now:
                self.counters[key] = self.counters.get(key, 0) + 1
        self.pending = [one for one in self.pending if one[0] > now]


PRODUCTS = [
    Product(
        name="Kong, local",
        how="simulated",
        law="Plugin `rate-limiting` with `policy: local`, the default: counters of wall-clock windows, in each instance.",
        simulate=lambda limit, _: Calendar(limit, is_local=True),
    ),
    Product(
        name="Kong, redis",
        how="simulated",
        law=f"`policy: redis`: the same counters in Redis. A request reads the counter, and a timer increments it after the check, here "
        f"{DELAY * 1_000:.0f} ms later, so that requests in between are not counted. Kong passes all requests while Redis fails "
        "(`fault_tolerant`, the default).",
        simulate=lambda limit, _: Calendar(limit, is_local=False),
        has_store=True,
    ),
]
