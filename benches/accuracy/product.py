"""What a product is: a program that this benchmark starts, or the law of its limiter, which this benchmark simulates.

A file of `products/` has a list `PRODUCTS`. Nothing else names a product.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Protocol

from stage import Stage

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Limit:
    """At most `rate` requests in any window of `seconds`."""

    rate: int = 100
    seconds: int = 1


# The documented limit, and a limit that is long enough to measure the announced wait in whole seconds.
SECOND, MINUTE = Limit(), Limit(seconds=60)


@dataclass(frozen=True)
class Answer:
    """The answer to a request. `wait` is the announced wait in seconds. A store that fails leads to an error, unless the
    product decides without it."""

    granted: bool
    wait: float | None = None
    failed: bool = False


class Law(Protocol):
    """The limiter of all instances of a product. Times are in seconds; wall-clock windows start at whole seconds."""

    def take(self, now: float, instance: int) -> Answer: ...

    def set_store(self, is_up: bool) -> None: ...


@dataclass(frozen=True)
class Fleet:
    """Running instances, by port. `fail_store` kills the primary of their store."""

    ports: list[int]
    fail_store: Callable[[], None] | None = None


Start = Callable[[Stage, Limit, int], Fleet]

# Announced waits minus the true ones, in seconds.
WaitErrors = list[float]


@dataclass(frozen=True)
class Product:
    """A product. `how` says what answers, and `law` how it limits. Either `start` or `simulate` is set. `needs` are packages
    of benches/peers. `fail` starts two instances whose store fails over. `header` has the announced wait in seconds."""

    name: str
    how: str
    law: str
    start: Start | None = None
    simulate: Callable[[Limit, int], Law] | None = None
    needs: tuple[str, ...] = ()
    fail: Start | None = None
    has_store: bool = False
    header: str = ""
    wait: Callable[[Stage], WaitErrors] | None = None
    ours: bool = False

    def missing(self, stage: Stage) -> str:
        return ", ".join(f"{name}: {stage.tools.missing[name]}" for name in self.needs if name in stage.tools.missing)


def find_products() -> list[Product]:
    """Returns the products of all files: ours first, then measured ones, then simulated ones, by name."""
    found: list[Product] = []
    for path in sorted((HERE / "products").glob("*.py")):
        found += importlib.import_module(f"products.{path.stem}").PRODUCTS
    return sorted(found, key=lambda one: (not one.ours, one.start is None, one.name.lower()))
