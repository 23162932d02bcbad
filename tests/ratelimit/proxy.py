"""Sends requests through Envoy, whose HTTP rate limit filter asks Tidegate."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import setup
from checking import expect, report
from process import Command, free_port

HERE = Path(__file__).resolve().parent / "config"
TIMEOUT = 60


class Upstream(setup.Upstream):
    """Responds with 200, with the tokens that the request names, as if it had used them, and with the plan that Envoy added."""

    def end_headers(self) -> None:
        for name in ("X-Tokens", "X-Plan"):
            if value := self.headers.get(name):
                self.send_header(name, value)
        super().end_headers()


@dataclass(frozen=True)
class Response:
    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def retry_after(self) -> int:
        return int(self.fields.get("retry-after", 0))


class Proxied(setup.Setup):
    """An upstream, Tidegate with the limits of a file, and Envoy."""

    def __init__(self, programs: setup.Programs, name: str, deny: bool = False):
        super().__init__(programs)
        self.upstream.RequestHandlerClass = Upstream
        self.service = free_port()
        self.port = free_port()
        rules = self.folder / "rules.yaml"
        rules.write_text(
            f"store: memory\nadmin: off\nservice:\n  grpc: 127.0.0.1:{self.service}\n"
            f"  descriptors: {HERE}/{name}_limits.yaml\n  dynamic_metadata: true\n"
        )
        command: Command = [programs.tidegate, "run", "-c", rules, "--workers", "1"]
        self.tidegate_process = self.start("tidegate", command, self.service)
        text = (HERE / f"{name}.yaml").read_text().replace("@DENY@", str(deny).lower())
        config = self.file(f"{name}.yaml", {8080: self.port, 8081: self.service, 9000: self.upstream_port}, "", text)
        command = [programs.envoy, "-c", config, "--concurrency", "1", "-l", "error", "--disable-hot-restart"]
        self.start("envoy", command, self.port)

    def get(self, path: str, **fields: str) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in fields.items()})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, names, response.read())
        finally:
            connection.close()


def rejects_with_the_true_wait(programs: setup.Programs) -> None:
    with Proxied(programs, "gateway") as proxied:
        first = proxied.get("/orders", X_User_Id="ann")
        expect("the first request", first.status, 200)
        expect("its policy", first.fields.get("ratelimit-policy", "").split(";")[1:], ["q=2", "w=1"])
        expect("its remaining requests", first.fields.get("ratelimit", "").split(";")[1], "r=1")
        expect("Envoy's own field", first.fields.get("x-ratelimit-remaining"), "1")
        expect("the metadata of its limit", first.fields.get("x-plan"), "basic")
        for _ in range(20):
            # A slow machine may need longer than the second in which both requests count.
            rejected = [one for one in (proxied.get("/orders", X_User_Id="ann") for _ in range(6)) if one.status != 200]
            if rejected:
                break
        expect("a rejected request", rejected[0].status, 429)
        expect("its wait", rejected[0].retry_after, 1)
        expect("its body", json.loads(rejected[0].body)["status"], 429)
        expect("its content type", rejected[0].fields["content-type"], "application/problem+json")
        expect("another user", proxied.get("/orders", X_User_Id="bob").status, 200)
        expect("without a user", [proxied.get("/orders").status for _ in range(5)], [200] * 5)
        time.sleep(rejected[-1].retry_after)
        expect("after the wait", proxied.get("/orders", X_User_Id="ann").status, 200)


def charges_the_cost_of_responses(programs: setup.Programs) -> None:
    with Proxied(programs, "gateway") as proxied:
        # 4 + 4 + 4 of 10 tokens: the third response exceeds the budget, so later requests wait.
        for used in (4, 8, 12):
            expect(f"before {used} tokens", proxied.get("/tokens", X_User_Id="ann", X_Tokens="4").status, 200)
            wait_for_report(proxied, max(0, 10 - used))
        rejected = proxied.get("/tokens", X_User_Id="ann", X_Tokens="4")
        expect("beyond the budget", (rejected.status, 3590 <= rejected.retry_after <= 3600), (429, True))
        expect("another user", proxied.get("/tokens", X_User_Id="bob", X_Tokens="4").status, 200)


def wait_for_report(proxied: Proxied, remaining: int) -> None:
    """Waits until Tidegate has read the report, which Envoy sends after the response. Checks of other requests without
    tokens show the remaining ones."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        shown = proxied.get("/tokens", X_User_Id="ann", X_Tokens="0").fields.get("x-ratelimit-remaining")
        if shown == str(remaining):
            return
    expect("the remaining tokens", shown, str(remaining))


def fails_as_configured(programs: setup.Programs) -> None:
    for deny, status in ((False, 200), (True, 500)):
        with Proxied(programs, "gateway", deny) as proxied:
            expect("with the service", proxied.get("/orders", X_User_Id="ann").status, 200)
            proxied.tidegate_process.stop()
            statuses = [proxied.get("/orders", X_User_Id="ann").status for _ in range(5)]
            expect(f"without it, failure_mode_deny: {deny}", statuses, [status] * 5)


def serves_istio(programs: setup.Programs) -> None:
    with Proxied(programs, "istio") as proxied:
        page = [proxied.get("/productpage") for _ in range(2)]
        expect("the page", [one.status for one in page], [200, 429])
        expect("its wait", 50 <= page[1].retry_after <= 60, True)
        expect("other paths", [proxied.get("/other").status for _ in range(4)], [200] * 3 + [429])
        expect("another path", proxied.get("/another").status, 200)


CHECKS: dict[str, Callable[[setup.Programs], None]] = {
    "Envoy, as Envoy Gateway configures it, rejects with the true wait": rejects_with_the_true_wait,
    "Envoy reports the cost of a response at its end, and later requests wait for it": charges_the_cost_of_responses,
    "Envoy fails open or closed without the service, as configured": fails_as_configured,
    "Envoy, as Istio configures it, rejects requests by their path": serves_istio,
}


def run(programs: setup.Programs) -> None:
    for sentence, check in CHECKS.items():
        report(sentence, lambda check=check: check(programs), TIMEOUT)
