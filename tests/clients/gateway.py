"""A running gateway and its addresses."""

from __future__ import annotations

import re
import subprocess


class Gateway:
    """A gateway process. `addresses` are the listeners in the order of the rule file; `admin` is the admin listener, and
    `service` the rate limit service over HTTP."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process
        self.addresses: list[str] = []
        self.service = ""
        self.admin = self.wait_until_started()

    def wait_until_started(self) -> str:
        """Reads the log until the gateway serves. Returns the address of the admin listener."""
        log = ""
        for line in self.process.stderr or ():
            log += line
            if listener := re.search(r"listening on (\S+)", line):
                self.addresses.append(without_scheme(listener[1]))
            if service := re.search(r"rate limit service on (http://\S+)", line):
                self.service = service[1]
            if admin := re.search(r"admin on (\S+)", line):
                return without_scheme(admin[1])
        raise RuntimeError(f"the gateway does not start: {log}")

    def wait(self) -> tuple[int, str]:
        """Waits for the exit. Returns the exit code and the rest of the log."""
        _, log = self.process.communicate(timeout=20)
        return self.process.returncode, log


def without_scheme(url: str) -> str:
    return url.partition("://")[2] or url
