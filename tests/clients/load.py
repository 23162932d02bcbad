"""Load over TLS until stopped: wrk over HTTP/1.1, Node.js and grpcio over HTTP/2."""

from __future__ import annotations

import json
import re
import signal
import threading

import grpc
from checking import expect
from grpc_server import SERVICE
from harness import Harness


class Load:
    """wrk and Node.js, each with reused connections and with a new connection per request, and calls of grpcio."""

    def __init__(self, harness: Harness, address: str):
        url = f"https://{address}/plain"
        wrk = ("wrk", "-t", 1, "-d", 300, "--timeout", 10, "-s", harness.folder / "load.lua")
        self.wrk = [
            harness.start(*wrk, "-c", 4, url),
            harness.start(*wrk, "-c", 2, "-H", "Connection: close", url),
        ]
        self.calls = Calls(harness, address)
        self.node = harness.start("node", harness.folder / "load_http2.mjs", url, harness.certificates.ca, takes_input=True)

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the load also if the check fails."""
        self.calls.stopped.set()
        for program in (*self.wrk, self.node):
            program.kill()

    def wait_for_progress(self) -> None:
        """Waits until Node.js has received 20 more responses."""
        assert self.node.stdin and self.node.stdout
        self.node.stdin.write("\n")
        self.node.stdin.flush()
        self.node.stdout.readline()

    def end(self) -> str:
        """Ends the load, which must have no failures. Returns a summary."""
        for program in self.wrk:
            program.send_signal(signal.SIGINT)
        answered = [responses_to_wrk(program.communicate(timeout=10)[0]) for program in self.wrk]
        result, _ = self.node.communicate(timeout=10)
        totals = json.loads(result)
        expect("failures of Node.js", totals["failures"], [])
        calls = self.calls.end()
        requests, handshakes = sum(answered) + totals["answered"], answered[1] + totals["handshakes"]
        return f"{requests} requests, {calls} calls, {handshakes} handshakes"


class Calls:
    """gRPC calls, sequential on each of two threads."""

    def __init__(self, harness: Harness, address: str):
        self.stopped, self.answered, self.failures = threading.Event(), 0, []
        credentials = grpc.ssl_channel_credentials(harness.certificates.ca.read_bytes())
        self.channel = grpc.secure_channel(address, credentials, [("grpc.use_local_subchannel_pool", 1)])
        self.threads = [threading.Thread(target=self.keep_calling, daemon=True) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def keep_calling(self) -> None:
        call = self.channel.unary_unary(f"/{SERVICE}/Unary")
        while not self.stopped.wait(0.002):
            try:
                call(b"hello", timeout=10)
                self.answered += 1
            except grpc.RpcError as error:
                self.failures.append(str(error))

    def end(self) -> int:
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        self.channel.close()
        expect("failures of grpcio", self.failures, [])
        return self.answered


def responses_to_wrk(result: str) -> int:
    """Returns the number of responses in the report of wrk. The report mentions failures only if there are any."""
    failures = re.findall(r"Socket errors: .*|Non-2xx or 3xx responses: .*", result)
    expect("failures of wrk", failures, [])
    answered = re.search(r"(\d+) requests in", result)
    return int(answered[1]) if answered else 0
