"""Kuadrant's TokenRateLimitPolicy."""

from __future__ import annotations

from dataclasses import dataclass

from laws import AfterTheFact
from product import Product

# Defaults of Kuadrant's RFC 0021.
AMOUNT, MAX_FRACTION = 5_000, 0.5


@dataclass
class FlatReservation:
    """A request reserves a fixed amount. At its end, its tokens are counted."""

    budget: int
    used: int = 0
    reserved: int = 0

    def admit(self) -> int | None:
        amount = min(AMOUNT, int(self.budget * MAX_FRACTION))
        if self.used + self.reserved + amount > self.budget:
            return None
        self.reserved += amount
        return amount

    def settle(self, reserved: int, tokens: int) -> None:
        self.reserved -= reserved
        self.used += tokens


PRODUCTS = [
    Product(
        name="Kuadrant",
        how="simulated",
        law="`TokenRateLimitPolicy`: a request passes unless the counter is above the limit. Its tokens are counted after the "
        "response.",
        simulate=lambda budget: AfterTheFact(budget, cost=0),
    ),
    Product(
        name="Kuadrant, reservations",
        how="simulated",
        law=f"The draft of its RFC 0021: each request reserves {AMOUNT:,} tokens, but at most half of the limit, independent of "
        "its cost. Its tokens are counted after the response, also above the reservation. A reservation ends after 60 s, which no "
        "request takes here.",
        simulate=FlatReservation,
    ),
]
