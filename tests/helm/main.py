"""Checks the chart; see `run`."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Callable

import policy
import rules
import yaml
from chart import CHART, ROOT, Fault, Helm

VALUES = [CHART / "values.yaml", *sorted((CHART / "values").glob("*.yaml")), *sorted(Path(__file__).parent.glob("values/*.yaml"))]
SERVICE = ("--set", "mode=ratelimit", "--set", "store.url=redis://redis:6379")

# Values that the chart must reject, and a part of the error.
REJECTED = [
    (("--set", "replicas=2"), "grant each limit several times"),
    (("--set", "autoscaling.enabled=true"), "grant each limit several times"),
    (("--set", "rules=a: ["), "not valid YAML"),
    (("--set", "rules=listen: 0.0.0.0:8080"), "no admin listener for probes"),
    (("--set-string", "rules=admin: 127.0.0.1:9901"), "no admin listener for probes"),
    (("--set", "listeners[0].port=8443", "--set", "listeners[0].name=https", "--set", "listeners[0].servicePort=443"), "has port 8443"),
    (("--set", "store.url=redis://user:password@redis:6379"), "has a password"),
    (("--set", "store.url=redis:6379"), "has no scheme"),
    (("--set-string", "files.a\\.yaml=x: { password: hunter2 }"), "a.yaml has a secret in line 1"),
    (("--set-string", "files.a\\.yaml=url: redis://u:hunter2@redis"), "a.yaml has a secret in line 1"),
    (("--set-string", "files.a\\.yaml=authorization: Bearer 0123456789abcdef"), "a.yaml has a secret in line 1"),
    (("--set", "mode=ratelimit"), "needs a Redis"),
    (SERVICE, "needs descriptors"),
    (("--set", "mode=controller"), "/mode"),
    (("--set", "resources.limits=null"), "limits"),
    (("--set", "unknown=1"), "unknown"),
]

# Texts of a rule file without a secret.
ACCEPTED = [
    "password: ${file:/run/secrets/tidegate/redis-password}",
    "# password: hunter2",
    "url: redis://u:${PASSWORD}@redis",
    "password_file: /run/secrets/tidegate/redis-password",
    "title: Basic authentication is required",
    "Authorization: Bearer ${TOKEN}",
]

# Changes of the default rules, and whether they need a restart.
CHANGES = [
    ("rate: 10\n", "rate: 11\n", False),
    ("targets: [builtin:echo]", "targets: [\"http://api\"]", False),
    ("admin: 0.0.0.0:9901", "admin: \"[::]:9901\"", True),
    ("access_log: stdout", "access_log: off", True),
    ("access_log: stdout", "access_log: { path: stdout, format: json }", False),
    ("listen:", "metrics: { process: off }\nlisten:", True),
]


def main() -> int:
    helm, program = Helm(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
    checks: list[tuple[str, Callable[[], None]]] = []
    for path in VALUES:
        checks.append((str(path.relative_to(ROOT)), lambda path=path: check_values(helm, program, path)))
    checks += [
        ("rejected values", lambda: check_rejected(helm)),
        ("restarts", lambda: check_restarts(helm)),
        ("exact texts", lambda: check_texts(helm)),
        ("versions", check_versions),
        ("README.md", check_readme),
    ]
    return 1 if [name for name, check in checks if not passes(name, check)] else 0


def passes(name: str, check: Callable[[], None]) -> bool:
    try:
        check()
    except Fault as fault:
        print(f"FAILED  {name}: {fault}", flush=True)
        return False
    print(f"ok      {name}", flush=True)
    return True


def check_values(helm: Helm, program: Path, path: Path) -> None:
    helm.lint("--values", path)
    manifests = helm.render("--values", path)
    with tempfile.TemporaryDirectory(prefix="tidegate-helm-") as folder:
        manifests.validate(Path(folder))
        policy.check(manifests)
        rules.check(manifests, program, Path(folder))
        if manifests.of("StatefulSet"):
            rules.start_redis(manifests, Path(folder))


def check_rejected(helm: Helm) -> None:
    for options, part in REJECTED:
        error = helm.refusal(*options)
        policy.require(part in error, f"{options}: {error}")


def check_restarts(helm: Helm) -> None:
    """Checks that exactly the settings that a reload does not apply restart the pods."""
    default = yaml.safe_load((CHART / "values.yaml").read_text())["rules"]
    before = policy.restart_of(helm.render())
    policy.require(before, "no annotation")
    for old, new, restarts in CHANGES:
        policy.require(old in default, f"the default rules do not have {old!r}")
        after = policy.restart_of(render_rules(helm, default.replace(old, new, 1)))
        policy.require((after != before) == restarts, f"{new!r}: a restart is {not restarts}")
    service = helm.render(*SERVICE, "--set-string", "descriptors.a\\.yaml=domain: a")
    policy.require(policy.restart_of(service) is None, "the service reads changes itself")


def render_rules(helm: Helm, text: str):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return helm.render("--set-file", f"rules={file.name}")


def check_texts(helm: Helm) -> None:
    """Checks that the rule file arrives as it is, so that lines of errors and large numbers stay the same."""
    default = yaml.safe_load((CHART / "values.yaml").read_text())["rules"]
    for line in ["# rate: 1000000", *ACCEPTED]:
        text = f"  \n{line}\n{default}" if line.startswith("#") else f"{default}\n{line}\n"
        data = render_rules(helm, text).only("ConfigMap")["data"]["tidegate.yaml"]
        policy.require(data.rstrip("\n").splitlines()[1:] == text.rstrip("\n").splitlines()[1:], f"{line!r} is changed")


def check_versions() -> None:
    """Checks that the chart, its image and the values for Envoy Gateway have the version of the program."""
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    policy.require(chart["version"] == chart["appVersion"] == version, f"the chart has the version {chart['version']}")
    repository = yaml.safe_load((CHART / "values.yaml").read_text())["image"]["repository"]
    kubernetes = yaml.safe_load((CHART.parent / "envoy-gateway.yaml").read_text())["config"]["envoyGateway"]["provider"]["kubernetes"]
    image = kubernetes["rateLimitDeployment"]["container"]["image"]
    policy.require(image == f"{repository}:{version}", f"Envoy Gateway runs {image}")


def check_readme() -> None:
    """Checks that README.md lists each value."""
    text = (CHART / "README.md").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    missing = [name for name in values if f"`{name}`" not in text and f"`{name}." not in text]
    policy.require(not missing, f"README.md does not list {', '.join(missing)}")


if __name__ == "__main__":
    sys.exit(main())
