"""HAProxy with a stick table, which its instances send to each other as peers."""

from __future__ import annotations

from process import Command, free_port
from product import HERE, Fleet, Limit, Product
from stage import Stage


def start(stage: Stage, limit: Limit, instances: int) -> Fleet:
    ports, own = [free_port() for _ in range(instances)], [free_port() for _ in range(instances)]
    peers = "\n".join(f"  peer instance{number} 127.0.0.1:{port}" for number, port in enumerate(own))
    for number, port in enumerate(ports):
        values = {"PORT": port, "RATE": limit.rate, "INTERVAL": f"{limit.seconds}s", "PEERS": peers}
        config = stage.config(str(HERE / "config" / "haproxy.cfg"), **values)
        command: Command = [stage.tools.haproxy, "-db", "-L", f"instance{number}", "-f", config]
        stage.start("haproxy", command, port)
    return Fleet(ports)


PRODUCTS = [
    Product(
        name="HAProxy, peers",
        how="measured",
        law="`http_req_rate(1s)` of a stick table: the requests of this window, and of the previous one in proportion to the "
        "part that is younger than a second. Rejected requests count, so a client that does not slow down gets no more 200. "
        "Peers send their counters, and the last one that arrives replaces the others. The response announces no wait.",
        start=start,
        needs=("haproxy",),
    )
]
