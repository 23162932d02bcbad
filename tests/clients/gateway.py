"""A gateway that runs, and where it listens."""

from __future__ import annotations

import re
import subprocess


class Gateway:
    """`addresses` are those of `listen`, in the order of the rule file, and `admin` is the operators'."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process
        self.addresses: list[str] = []
        self.admin = self.started()

    def started(self) -> str:
        """Reads what it says until it serves."""
        said = ""
        for line in self.process.stderr or ():
            said += line
            if listens := re.search(r"listening on (\S+)", line):
                self.addresses.append(without_scheme(listens[1]))
            if serves := re.search(r"admin on (\S+)", line):
                return without_scheme(serves[1])
        raise RuntimeError(f"the gateway does not start: {said}")

    def end(self) -> tuple[int, str]:
        """Waits for its end; returns its code, and what it said since it serves."""
        _, said = self.process.communicate(timeout=20)
        return self.process.returncode, said


def without_scheme(url: str) -> str:
    return url.partition("://")[2] or url
