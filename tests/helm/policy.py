"""What all rendered manifests must have: security settings, resources, and references that fit together."""

from __future__ import annotations

import re

from chart import Fault, Manifests, container, pod

# A chart with other kinds would need more permissions, or a controller.
KINDS = {
    "ConfigMap", "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget", "Service",
    "ServiceAccount", "ServiceMonitor", "StatefulSet",
}  # fmt: skip
SECRET = re.compile(r"://[^/\s\"'@]*:[^/\s\"'@$]+@|\b(password|key_secret)\s*:\s*[\"']?[^\s\"'$]")
RESTART = "tidegate/restart"


def check(manifests: Manifests) -> None:
    """Runs all checks of this file."""
    require({one["kind"] for one in manifests.objects} <= KINDS, "an unexpected kind")
    for workload in manifests.workloads():
        check_pod(workload)
        check_selector(workload["spec"]["selector"]["matchLabels"], workload)
    check_config_maps(manifests)
    check_references(manifests)
    check_rollout(manifests)


def check_pod(workload: dict) -> None:
    context = pod(workload)["securityContext"]
    require(context["runAsNonRoot"] and context["runAsUser"] >= 100, "a pod may run as root")
    require(context["seccompProfile"]["type"] == "RuntimeDefault", "a pod has no seccomp profile")
    require(pod(workload)["automountServiceAccountToken"] is False, "a pod has a token of the cluster")
    require(pod(workload)["enableServiceLinks"] is False, "Services set variables of the program")
    for one in pod(workload)["containers"] + pod(workload).get("initContainers", []):
        security, resources = one["securityContext"], one["resources"]
        require(security["readOnlyRootFilesystem"], "the root file system is writable")
        require(security["allowPrivilegeEscalation"] is False, "a container may gain privileges")
        require(security["capabilities"] == {"drop": ["ALL"]}, "a container has capabilities")
        require({"cpu", "memory"} <= set(resources["requests"]) and "memory" in resources["limits"], "no resources")
        mounts = one["volumeMounts"]
        require(not any("subPath" in mount for mount in mounts), "a file that is mounted alone does not change")
        volumes = {volume["name"] for volume in pod(workload).get("volumes", [])}
        claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
        require({mount["name"] for mount in mounts} <= volumes | claims, "a mount without a volume")


def check_config_maps(manifests: Manifests) -> None:
    for config in manifests.of("ConfigMap"):
        for name, text in config["data"].items():
            lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
            require(not any(SECRET.search(line) for line in lines), f"{name} has a secret")


def check_references(manifests: Manifests) -> None:
    """Checks that selectors select pods, and that names of ports exist."""
    for service in manifests.of("Service"):
        workload = check_selector(service["spec"]["selector"], *manifests.workloads())
        for port in service["spec"]["ports"]:
            require(port["targetPort"] in port_names(workload), f"no port {port['targetPort']}")
    for policy in manifests.of("NetworkPolicy"):
        workload = check_selector(policy["spec"]["podSelector"]["matchLabels"], *manifests.workloads())
        ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        require(ports <= set(port_names(workload)), f"ports {ports}")
        admin = [rule for rule in policy["spec"]["ingress"] if {"port": "admin"} in rule["ports"]]
        require(all(rule.get("from") for rule in admin), "the admin port is open to every pod")
    for budget in manifests.of("PodDisruptionBudget"):
        check_selector(budget["spec"]["selector"]["matchLabels"], *manifests.workloads())
    for monitor in manifests.of("ServiceMonitor"):
        labels = monitor["spec"]["selector"]["matchLabels"].items()
        found = [one for one in manifests.of("Service") if labels <= one["metadata"]["labels"].items()]
        require(len(found) == 1, f"the ServiceMonitor selects {len(found)} Services")
        names = [port["name"] for port in found[0]["spec"]["ports"]]
        require(monitor["spec"]["endpoints"][0]["port"] in names, "the ServiceMonitor names no port")


def check_selector(labels: dict, *workloads: dict) -> dict:
    """Returns the only workload whose pods have these labels."""
    found = [one for one in workloads if labels.items() <= one["spec"]["template"]["metadata"]["labels"].items()]
    require(len(found) == 1, f"{labels} selects {len(found)} workloads")
    return found[0]


def check_rollout(manifests: Manifests) -> None:
    """Checks that a rollout fails no request: a new pod comes first, and an old one has time to drain."""
    deployment = manifests.only("Deployment")
    strategy = deployment["spec"]["strategy"]["rollingUpdate"]
    require(strategy == {"maxUnavailable": 0, "maxSurge": 1}, "a rollout stops a pod before it starts one")
    words = container(deployment)["args"]
    delay, timeout = (int(words[words.index(option) + 1]) for option in ("--drain-delay", "--drain-timeout"))
    require(pod(deployment)["terminationGracePeriodSeconds"] > delay + timeout, "a drain would be killed")
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        require(container(deployment)[probe]["httpGet"] == {"path": path, "port": "admin"}, probe)
    for scaler in manifests.of("HorizontalPodAutoscaler"):
        require("replicas" not in deployment["spec"], "an upgrade would reset the number of pods")
        require(scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"], "the autoscaler scales nothing")


def restart_of(manifests: Manifests) -> str | None:
    """Returns the annotation whose change restarts the pods. Fails if there is another annotation."""
    annotations = dict(manifests.only("Deployment")["spec"]["template"]["metadata"].get("annotations") or {})
    restart = annotations.pop(RESTART, None)
    require(not annotations, f"a change restarts pods that would reload: {annotations}")
    return restart


def port_names(workload: dict) -> list[str]:
    return [port["name"] for port in container(workload)["ports"]]


def require(condition: object, fault: str) -> None:
    if not condition:
        raise Fault(fault)
