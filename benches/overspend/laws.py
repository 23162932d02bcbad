"""The laws of budgets that several products have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class AfterTheFact:
    """A request passes if the counter allows `cost` more tokens, and its tokens are counted at its end."""

    budget: int
    cost: int
    used: int = 0

    def admit(self) -> int | None:
        return 0 if self.used + self.cost <= self.budget else None

    def settle(self, reserved: int, tokens: int) -> None:
        self.used += tokens
