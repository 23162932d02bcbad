"""What a product is: a program that this benchmark starts, or the law of its budgets, which this benchmark simulates.

A file of `products/` has a list `PRODUCTS`. Nothing else names a product.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Protocol

from stage import Stage

HERE = Path(__file__).resolve().parent

# The key of the client, with which a product finds the budget.
KEY = "sk-{budget}"


class Law(Protocol):
    """The budget of all instances of a product, in one window. `admit` returns `None` for a rejected request, and otherwise
    what is reserved. `settle` ends a request that has used these tokens."""

    def admit(self) -> int | None: ...

    def settle(self, reserved: int, tokens: int) -> None: ...


@dataclass(frozen=True)
class Product:
    """A product. `how` says what answers, and `law` how it keeps a budget. Either `start` or `simulate` is set: `start` takes
    the port of the upstream and the budget, and returns the ports of its instances."""

    name: str
    how: str
    law: str
    start: Callable[[Stage, int, int], list[int]] | None = None
    simulate: Callable[[int], Law] | None = None
    version: Callable[[], str] | None = None
    ours: bool = False


def find_products() -> list[Product]:
    """Returns the products of all files: ours first, then measured ones, then simulated ones, by name."""
    found: list[Product] = []
    for path in sorted((HERE / "products").glob("*.py")):
        found += importlib.import_module(f"products.{path.stem}").PRODUCTS
    return sorted(found, key=lambda one: (not one.ours, one.start is None, one.name.lower()))
