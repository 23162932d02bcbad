"""APISIX's plugin limit-count."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from product import Answer, Limit, Product


@dataclass
class Window:
    """A counter that starts with a request and ends one interval later. With the policy `local`, each instance has its own."""

    limit: Limit
    is_local: bool
    is_up: bool = True
    windows: dict[int, tuple[float, int]] = field(default_factory=dict)

    def set_store(self, is_up: bool) -> None:
        self.is_up = is_up

    def take(self, now: float, instance: int) -> Answer:
        if not self.is_local and not self.is_up:
            return Answer(False, failed=True)  # allow_degradation is off by default
        key = instance if self.is_local else 0
        end, count = self.windows.get(key, (now, 0))
        if end <= now:
            end, count = now + self.limit.seconds, 0
        self.windows[key] = end, count + 1
        if count < self.limit.rate:
            return Answer(True)
        # The script reads the rest by `TTL`, which Redis rounds to the nearest second.
        return Answer(False, end - now if self.is_local else math.floor(end - now + 0.5))


PRODUCTS = [
    Product(
        name="APISIX, local",
        how="simulated",
        law="Plugin `limit-count` with `policy: local`, the default: a counter in each instance, whose window starts with a request.",
        simulate=lambda limit, _: Window(limit, is_local=True),
    ),
    Product(
        name="APISIX, redis",
        how="simulated",
        law="`policy: redis`: the same counter in Redis, in a script. The announced wait is its `TTL`, which Redis rounds to "
        "the nearest second. While Redis fails, requests get 500 (`allow_degradation: false`, the default).",
        simulate=lambda limit, _: Window(limit, is_local=False),
        has_store=True,
    ),
]
