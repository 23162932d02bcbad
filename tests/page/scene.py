"""Two gateways that share a Redis, and clients that send requests to the first one."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from webdriver import Browser, free_port, wait_until

FOLDER = Path(__file__).resolve().parent
TOKEN = "0123456789abcdef0123456789abcdef"


class Gateway:
    """A gateway process. `url` is the address for clients, `admin` that of the dashboard."""

    def __init__(self, program: Path, folder: Path):
        self.rules = folder / "tidegate.yaml"
        command = [str(program), "run", "-c", str(self.rules), "--workers", "1"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)
        self.url = self.admin = ""
        log = ""
        for line in self.process.stderr or ():
            log += line
            if listener := re.search(r"listening on (\S+)", line):
                self.url = listener[1]
            if admin := re.search(r"admin on (\S+)", line):
                self.admin = admin[1].rstrip("/")
                break
        if not self.admin:
            raise RuntimeError(f"the gateway does not start: {log}")
        # The log is read on, so that the gateway never waits for its reader.
        threading.Thread(target=lambda: [None for _ in self.process.stderr or ()], daemon=True).start()

    def get(self, path: str, **headers: str) -> int:
        """Sends a request as a client. Returns the status."""
        request = urllib.request.Request(self.url + path, headers={"User-Agent": "check", **headers})
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    def metric(self, series: str) -> float:
        """Returns the sum of the series that begin with a text."""
        with urllib.request.urlopen(self.admin + "/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(series))

    def api(self, path: str, method: str = "GET") -> object:
        request = urllib.request.Request(
            f"{self.admin}/api/v1/{path}", method=method, headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)


class Load:
    """Clients that send requests until `stop`."""

    def __init__(self, gateway: Gateway):
        self.address = gateway.url.split("://")[1].rstrip("/")
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.send, args=(number,)) for number in range(4)]
        for thread in self.threads:
            thread.start()

    def send(self, number: int) -> None:
        connection = http.client.HTTPConnection(self.address, timeout=10)
        for count in itertools.count():
            if self.stopped.wait(0.01):
                return connection.close()
            # Two of three requests of a client are to the shop, which rejects many of them.
            path = "/shop/items" if count % 3 else f"/v1/orders/{count}"
            try:
                connection.request("GET", path, headers={"X-Api-Key": f"key-{number}"})
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()


class Scene:
    """All processes. They end with the scene."""

    def __init__(self, program: Path):
        self.program = program.resolve()
        self.load: Load | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Scene:
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            self.redis_port = free_port()
            self.redis = self.start_redis()
            self.gateway, self.other = self.start_gateway("one"), self.start_gateway("two")
            self.browser = Browser(self.folder / "profile")
            self._stack.callback(self.browser.close)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_redis(self) -> subprocess.Popen[bytes]:
        command = ["redis-server", "--port", str(self.redis_port), "--save", "", "--dir", str(self.folder)]
        redis = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._stack.callback(end, redis)
        return redis

    def restart_redis(self) -> None:
        self.redis = self.start_redis()

    def start_gateway(self, name: str, rules: str | None = None) -> Gateway:
        folder = self.folder / name
        folder.mkdir()
        (folder / "keys").write_text("partner-1: { id: one }\n")
        (folder / "tokens").write_text(f"ann:{TOKEN}\n")
        text = rules or (FOLDER / "rules.yaml").read_text()
        (folder / "tidegate.yaml").write_text(text.replace("@REDIS@", str(self.redis_port)))
        gateway = Gateway(self.program, folder)
        self._stack.callback(end, gateway.process)
        return gateway

    def start_load(self) -> None:
        self.load = Load(self.gateway)
        self._stack.callback(self.load.stop)

    def stop_load(self) -> None:
        if self.load:
            self.load.stop()

    def show(self, page: str = "", gateway: Gateway | None = None) -> None:
        """Opens a page of the dashboard, and waits for its first event."""
        self.browser.open("about:blank")
        self.browser.open(f"{(gateway or self.gateway).admin}/#/{page}")
        wait_until("the page to be live", lambda: self.browser.text("#stream") == "Live")


def end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

