"""A client of chromedriver: the part of the WebDriver protocol that the checks need."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
FLAGS = [
    "--headless=new",
    "--no-sandbox",  # the sandbox does not work for root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
]


class Browser:
    """A headless Chromium."""

    def __init__(self, profile: Path):
        port = free_port()
        # The driver and its browser are one process group, so that both end.
        self.process = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.address = f"http://127.0.0.1:{port}"
        wait_until("chromedriver to listen", lambda: self.call("GET", "/status")["ready"])
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.address += f"/session/{session['sessionId']}"

    def close(self) -> None:
        try:
            self.call("DELETE", "")
        finally:
            self.process.terminate()
            self.process.wait(5)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if method == "GET" else json.dumps(body or {}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            problem = json.load(error)["value"]
            raise RuntimeError(f"{problem['error']}: {problem['message'][:500]}") from None

    def open(self, url: str) -> None:
        self.call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Runs a script as the body of a function, outside the policy of the page."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str, *arguments: object) -> Any:
        """Runs a script that calls its last argument with the result."""
        return self.call("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def find(self, selector: str) -> str:
        found = self.call("POST", "/element", {"using": "css selector", "value": selector})
        return f"/element/{found[ELEMENT]}"

    def click(self, selector: str) -> None:
        self.call("POST", self.find(selector) + "/click")

    def type(self, selector: str, text: str) -> None:
        """Replaces the text of a field by key strokes."""
        element = self.find(selector)
        self.call("POST", element + "/clear")
        self.call("POST", element + "/value", {"text": text})

    def choose(self, selector: str, value: str) -> None:
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change', {bubbles: true}));"
        element = self.call("POST", "/element", {"using": "css selector", "value": selector})
        self.run(script, element, value)

    def text(self, selector: str = "body") -> str:
        return self.call("GET", self.find(selector) + "/text")

    def devtools(self, command: str, **parameters: object) -> Any:
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width: int, height: int = 900) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def scheme(self, name: str) -> None:
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self, file: Path, width: int) -> None:
        """Writes a picture of the whole page."""
        height = self.run("return document.documentElement.scrollHeight")
        self.resize(width, max(700, min(height, 4000)))
        picture = self.devtools("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(picture["data"]))
        self.resize(width)

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Returns the new entries of a log."""
        return self.call("POST", "/se/log", {"type": kind})


def wait_until(what: str, is_true: Callable[[], Any], seconds: float = 10) -> Any:
    """Waits until a function returns a true value, and returns that. Errors count as false until the deadline."""
    end = time.monotonic() + seconds
    while True:
        try:
            value, problem = is_true(), None
        except (OSError, RuntimeError) as error:
            value, problem = None, error
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}: {problem or value!r}")
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
