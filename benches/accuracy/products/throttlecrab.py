"""throttlecrab, a rate limit server."""

from gcra import Gcra
from product import Product

PRODUCTS = [
    Product(
        name="throttlecrab",
        how="simulated",
        law="GCRA with a burst of 100, in the memory of one server that all instances ask. The wait is in whole seconds, rounded down.",
        simulate=lambda limit, _: Gcra(limit, is_shared=True),
    )
]
