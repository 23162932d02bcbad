"""APISIX's plugin ai-rate-limiting."""

from __future__ import annotations

from laws import AfterTheFact
from product import Product

PRODUCTS = [
    Product(
        name="APISIX",
        how="simulated",
        law="Plugin `ai-rate-limiting`: a request passes if the counter allows one token more, without counting it. Its "
        "tokens are counted in the log phase, after the response.",
        simulate=lambda budget: AfterTheFact(budget, cost=1),
    )
]
