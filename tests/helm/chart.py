"""Renders the chart with Helm, and validates the manifests."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "tidegate"
# The version of Kubernetes that the validator has schemas of.
KUBERNETES = "1.37.0"
RELEASE = "edge"
# A custom resource, which the schemas do not contain.
CUSTOM = {"ServiceMonitor"}


class Fault(Exception):
    """A check that failed."""


@dataclass(frozen=True)
class Helm:
    """The program, and how to render the chart with it."""

    program: Path

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(self.program), *map(str, words), "--kube-version", KUBERNETES]
        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)

    def lint(self, *options: str | Path) -> None:
        done = self.run("lint", "--strict", CHART, *options)
        if done.returncode:
            raise Fault(f"helm lint: {done.stdout}{done.stderr}")

    def render(self, *options: str | Path) -> Manifests:
        done = self.run("template", RELEASE, CHART, *options)
        if done.returncode:
            raise Fault(f"helm template: {done.stderr.strip()}")
        return Manifests(done.stdout)

    def refusal(self, *options: str | Path) -> str:
        """Returns the error of values that the chart must reject."""
        done = self.run("template", RELEASE, CHART, *options)
        if not done.returncode:
            raise Fault(f"{' '.join(map(str, options))} is accepted")
        return done.stderr


class Manifests:
    """The rendered objects."""

    def __init__(self, text: str):
        self.objects = [one for one in yaml.safe_load_all(text) if one]

    def of(self, kind: str) -> list[dict]:
        return [one for one in self.objects if one["kind"] == kind]

    def only(self, kind: str) -> dict:
        found = self.of(kind)
        if len(found) != 1:
            raise Fault(f"there are {len(found)} objects of the kind {kind}")
        return found[0]

    def workloads(self) -> list[dict]:
        return self.of("Deployment") + self.of("StatefulSet")

    def validate(self, folder: Path) -> None:
        """Validates all objects with schemas. `folder` is for temporary files."""
        path = folder / "manifests.yaml"
        known = [one for one in self.objects if one["kind"] not in CUSTOM]
        path.write_text(yaml.safe_dump_all(known))
        program = Path(sys.executable).parent / "kubernetes-validate"
        done = subprocess.run([program, "--strict", path], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise Fault(f"kubernetes-validate: {done.stdout}{done.stderr}")


def pod(workload: dict) -> dict:
    return workload["spec"]["template"]["spec"]


def container(workload: dict) -> dict:
    return pod(workload)["containers"][0]
