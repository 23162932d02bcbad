"""The test environment: a gateway, with servers behind it and proxies in front of it, on free ports."""

from __future__ import annotations

import itertools
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import grpc
import grpc_server
import websocket_server
from certificates import Certificates
from gateway import Gateway

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent


class Harness:
    """The servers that the checks use. All are terminated at the end of the run."""

    def __init__(self, program: Path):
        self.program = program.resolve()
        self.folder = FOLDER
        self._stack = ExitStack()
        self._names = itertools.count()

    def __enter__(self) -> Harness:
        self.scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.scratch.chmod(0o711)  # nginx reads files as another user
        try:
            self.make_certificates()
            self.start_servers()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def make_certificates(self) -> None:
        self.certificates = Certificates(self.scratch)
        self.certificates.make("api", "DNS:localhost", "DNS:secure.test", "IP:127.0.0.1")
        self.certificates.make("web", "DNS:web.test", "DNS:*.wild.test")
        for name in ("client", "reloaded"):
            self.certificates.make(name, f"DNS:{name}.test")
        self.certificates.make_ocsp("api")
        folder = self.scratch / "other_authority"
        folder.mkdir()
        self.other_authority = Certificates(folder)
        self.other_authority.make("client", "DNS:client.test")

    def start_servers(self) -> None:
        """Starts the upstream servers, the gateway and the proxies."""
        key, certificate = ((self.scratch / f"api.{kind}").read_bytes() for kind in ("key", "pem"))
        self.grpc = grpc_server.Server()
        self._stack.callback(lambda: self.grpc.stop())  # a check may have replaced it
        grpc_tls = grpc_server.Server(grpc.ssl_server_credentials([(key, certificate)]))
        self._stack.callback(grpc_tls.stop)
        # Sends GOAWAY on each connection after 200 ms.
        self.goaway = grpc_server.Server(None, 0, ("grpc.max_connection_age_ms", 200))
        self._stack.callback(self.goaway.stop)
        sockets = websocket_server.Server()
        self._stack.callback(sockets.stop)
        self.origin = f"127.0.0.1:{self.start_node('origin.mjs', self.scratch / 'origin.sock')}"
        self.gateway = self.start_gateway(
            FOLDER / "rules.yaml",
            ORIGIN=self.origin,
            GRPC=self.grpc.port,
            GRPC_TLS=grpc_tls.port,
            GRPC_GOAWAY=self.goaway.port,
            SOCKETS=sockets.port,
            NGINX=self.start_nginx(),
            FOLDER=self.scratch,
        )
        self.address, self.tls, self.mutual, _, self.proxied, self.proxied_tls = self.gateway.addresses
        self.proxies = self.start_haproxy()
        self.url, self.tls_url = f"http://{self.address}", f"https://localhost:{self.tls.rpartition(':')[2]}"

    def name(self) -> str:
        """Returns a new name: a client whose limits are unused."""
        return f"name-{next(self._names)}"

    def write(self, name: str, text: str) -> Path:
        path = self.scratch / name
        path.write_text(text)
        return path

    def start_node(self, script: str, *arguments: object) -> int:
        """Starts a Node.js server, which prints its port."""
        server = self.start("node", FOLDER / script, *arguments)
        assert server.stdout
        return int(server.stdout.readline())

    def start_nginx(self) -> int:
        port = free_port()
        config = self.fill(FOLDER / "nginx.conf", PORT=port, SCRATCH=self.scratch)
        self.start("nginx", "-e", "stderr", "-p", self.scratch, "-c", config)
        wait_for(port)
        return port

    def start_haproxy(self) -> dict[str, int]:
        """Starts haproxy in front of the gateway. Returns its ports, by their names in the file."""
        ports = {name: free_port() for name in ("V1", "V2", "UNTRUSTED", "HTTP2", "HTTP2_TLS")}
        addresses = {"GATEWAY": self.address, "TLS": self.tls, "PROXIED": self.proxied, "PROXIED_TLS": self.proxied_tls}
        config = self.fill(FOLDER / "haproxy.cfg", SCRATCH=self.scratch, **ports, **addresses)
        self.start("haproxy", "-db", "-f", config)
        for port in ports.values():
            wait_for(port)
        return ports

    def start_gateway(self, template: Path, *arguments: object, **values: object) -> Gateway:
        config = self.fill(template, **values)
        command = (self.program, "run", "-c", config, "--workers", "2", *arguments)
        return Gateway(self.start(*command, stderr=subprocess.PIPE))

    def fill(self, template: Path, **values: object) -> Path:
        """Writes a copy of a file with its `@NAMES@` replaced."""
        text = template.read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        return self.write(f"{self.name()}-{template.name}", text)

    def start(self, *command: object, stderr: int | None = None, takes_input: bool = False) -> subprocess.Popen[str]:
        """Starts a program, which is terminated at the end of the run."""
        words = [str(word) for word in command]
        stdin = subprocess.PIPE if takes_input else subprocess.DEVNULL
        process = subprocess.Popen(
            words, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=self.scratch
        )
        self._stack.callback(end, process)
        return process


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()


def free_port() -> int:
    """Returns a free port, for servers that cannot choose one. Another process may take it, which is unlikely."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port: int) -> None:
    """Waits until a server listens on the port."""
    end = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
