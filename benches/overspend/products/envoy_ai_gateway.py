"""Envoy AI Gateway's limits of tokens."""

from __future__ import annotations

from laws import AfterTheFact
from product import Product

PRODUCTS = [
    Product(
        name="Envoy AI Gateway",
        how="simulated",
        law="`BackendTrafficPolicy` with the request's cost 0 and the response's cost from its usage, as its documentation "
        "recommends: a request passes unless the counter is above the limit. Its tokens are counted when its stream has ended.",
        simulate=lambda budget: AfterTheFact(budget, cost=0),
    )
]
