"""tower_governor, a Tower layer."""

from gcra import Gcra
from product import Product

PRODUCTS = [
    Product(
        name="tower_governor",
        how="simulated",
        law="GCRA with a burst of 100, in the memory of each instance. `retry-after` is in whole seconds, rounded down.",
        simulate=lambda limit, _: Gcra(limit, is_shared=False),
    )
]
