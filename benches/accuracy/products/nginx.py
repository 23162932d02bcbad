"""nginx with `limit_req`, in shared memory of each instance."""

from __future__ import annotations

from process import free_port
from product import HERE, Fleet, Limit, Product
from stage import Stage


def start(stage: Stage, limit: Limit, instances: int, excess: str) -> Fleet:
    ports = [free_port() for _ in range(instances)]
    for port in ports:
        rate = f"{limit.rate}r/{'s' if limit.seconds == 1 else 'm'}"
        config = stage.config(str(HERE / "config" / "nginx.conf"), PORT=port, RATE=rate, EXCESS=excess)
        stage.start("nginx", stage.nginx(config), port)
    return Fleet(ports)


PRODUCTS = [
    Product(
        name="nginx, burst",
        how="measured",
        law="`limit_req rate=100r/s burst=99 nodelay`: a leaky bucket of 100 requests that leaks 100 a second. Each instance has its "
        "own. The response announces no wait.",
        start=lambda stage, limit, instances: start(stage, limit, instances, f" burst={limit.rate - 1} nodelay"),
        needs=("nginx",),
    ),
    Product(
        name="nginx, no burst",
        how="measured",
        law="`limit_req rate=100r/s`: at most one request in 10 ms, so that 100 requests at once get one 200.",
        start=lambda stage, limit, instances: start(stage, limit, instances, ""),
        needs=("nginx",),
    ),
]
