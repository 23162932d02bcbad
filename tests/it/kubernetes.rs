//! Tests of `examples/kubernetes` without a cluster: the rule file is valid, and the manifests refer to each other and to
//! the program correctly. `tests/run` also validates them against the schemas of Kubernetes.

use std::fs;

use serde_yaml::Value;

use crate::support::compose::replace_once;
use crate::support::pages::{self, Page};
use crate::support::process::{RuleFile, output};

/// The manifests of all files.
struct Manifests(Vec<Value>);

impl Manifests {
    fn read() -> Self {
        let folder = pages::root().join("examples/kubernetes");
        let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        let files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        let texts = files.map(|path| fs::read_to_string(path).expect("a file"));
        let all = texts.flat_map(|text| {
            text.split("\n---\n").map(|one| serde_yaml::from_str(one).expect("YAML")).collect::<Vec<Value>>()
        });
        Self(all.collect())
    }

    fn find(&self, kind: &str, name: &str) -> &Value {
        let mut found = self.0.iter().filter(|one| one["kind"] == *kind && one["metadata"]["name"] == *name);
        let manifest = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
        assert!(found.next().is_none(), "two manifests {kind} {name}");
        manifest
    }

    fn rules(&self) -> &str {
        self.find("ConfigMap", "tidegate")["data"]["tidegate.yaml"].as_str().expect("the rule file")
    }

    fn pod(&self) -> &Value {
        &self.find("Deployment", "tidegate")["spec"]["template"]
    }

    fn container(&self) -> &Value {
        &self.pod()["spec"]["containers"][0]
    }

    fn port(&self, name: &str) -> u64 {
        let port = items(&self.container()["ports"]).find(|port| port["name"] == *name);
        port.and_then(|port| port["containerPort"].as_u64()).unwrap_or_else(|| panic!("no port {name}"))
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_sequence().expect("a list").iter()
}

#[test]
fn kubernetes_rule_file_is_valid() {
    let manifests = Manifests::read();
    let password = RuleFile::new("kubernetes-password", "secret\n");
    let tokens = RuleFile::new("kubernetes-tokens", "alice:0123456789abcdef\n");
    let rules = replace_once(manifests.rules(), "/run/secrets/tidegate/redis-password", password.path());
    let file = RuleFile::new("kubernetes", &replace_once(&rules, "/run/secrets/tidegate/tokens", tokens.path()));
    let checked = output(&["check", file.path()]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn kubernetes_arguments_are_options_of_the_program() {
    let manifests = Manifests::read();
    let arguments: Vec<_> = items(&manifests.container()["args"]).map(|word| word.as_str().expect("a word")).collect();
    let parsed = output(&[&arguments[..], &["--help"]].concat());
    assert!(parsed.status.success(), "{}", String::from_utf8_lossy(&parsed.stderr));
    let seconds = |option: &str| {
        let at = arguments.iter().position(|word| *word == option).expect("the option");
        arguments[at + 1].parse::<u64>().expect("seconds")
    };
    let grace_period = manifests.pod()["spec"]["terminationGracePeriodSeconds"].as_u64().expect("seconds");
    assert!(grace_period > seconds("--drain-delay") + seconds("--drain-timeout"), "{grace_period} s");
}

#[test]
fn kubernetes_selectors_match_the_pods() {
    let manifests = Manifests::read();
    let labels = &manifests.pod()["metadata"]["labels"];
    let spec = |kind: &str, name: &str| manifests.find(kind, name)["spec"].clone();
    for selector in [
        &spec("Deployment", "tidegate")["selector"]["matchLabels"],
        &spec("PodDisruptionBudget", "tidegate")["selector"]["matchLabels"],
        &spec("NetworkPolicy", "tidegate")["podSelector"]["matchLabels"],
        &spec("Service", "tidegate")["selector"],
        &spec("Service", "tidegate-admin")["selector"],
    ] {
        assert_eq!(selector, labels);
    }
    let scaled = &spec("HorizontalPodAutoscaler", "tidegate")["scaleTargetRef"];
    let deployment = manifests.find(scaled["kind"].as_str().expect("a kind"), scaled["name"].as_str().expect("a name"));
    assert_eq!(deployment["apiVersion"], scaled["apiVersion"]);
}

#[test]
fn kubernetes_ports_match_the_rule_file() {
    let manifests = Manifests::read();
    let rules: Value = serde_yaml::from_str(manifests.rules()).expect("YAML");
    assert_eq!(rules["listen"], *format!("0.0.0.0:{}", manifests.port("http")));
    assert_eq!(rules["admin"]["address"], *format!("0.0.0.0:{}", manifests.port("admin")));
    for (service, port) in [("tidegate", "http"), ("tidegate-admin", "admin")] {
        assert_eq!(manifests.find("Service", service)["spec"]["ports"][0]["targetPort"], *port);
    }
    let scraped = manifests.pod()["metadata"]["annotations"]["prometheus.io/port"].as_str().expect("a port");
    assert_eq!(scraped, manifests.port("admin").to_string());
    for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        let get = &manifests.container()[probe]["httpGet"];
        assert_eq!((&get["path"], &get["port"]), (&path.into(), &"admin".into()));
    }
    let allowed: Vec<_> = items(&manifests.find("NetworkPolicy", "tidegate")["spec"]["ingress"]).collect();
    assert_eq!(allowed.len(), 2);
    for (rule, name) in allowed.into_iter().zip(["http", "admin"]) {
        assert_eq!(rule["ports"][0]["port"], name);
        assert!(rule["from"][0]["namespaceSelector"]["matchLabels"].is_mapping(), "{name} is open to every pod");
    }
}

#[test]
fn kubernetes_files_are_mounted_as_folders() {
    let manifests = Manifests::read();
    let container = manifests.container();
    let volume_of = |path: &str| {
        let (folder, _) = path.rsplit_once('/').expect("a folder");
        let mount = items(&container["volumeMounts"]).find(|mount| mount["mountPath"] == *folder);
        let mount = mount.unwrap_or_else(|| panic!("{folder} is not mounted"));
        assert!(mount["subPath"].is_null(), "a file that is mounted alone does not change");
        let volume = items(&manifests.pod()["spec"]["volumes"]).find(|volume| volume["name"] == mount["name"]);
        volume.unwrap_or_else(|| panic!("no volume for {folder}"))
    };
    assert!(items(&container["args"]).any(|word| word == "/etc/tidegate/tidegate.yaml"));
    assert_eq!(volume_of("/etc/tidegate/tidegate.yaml")["configMap"]["name"], "tidegate");

    // The README creates the Secret with a file for each key.
    let page = Page::read(pages::root().join("examples/kubernetes/README.md"));
    for (file, option) in [("redis-password", "--from-literal=redis-password="), ("tokens", "--from-file=tokens")] {
        let path = format!("/run/secrets/tidegate/{file}");
        assert!(manifests.rules().contains(&path), "the rule file does not use {path}");
        let secret = volume_of(&path)["secret"]["secretName"].as_str().expect("a name");
        assert!(
            page.text.contains(&format!("create secret generic {secret} ")) && page.text.contains(option),
            "{file}"
        );
    }
}

#[test]
fn kubernetes_gateways_are_counted_as_the_autoscaler_counts() {
    let manifests = Manifests::read();
    let rules: Value = serde_yaml::from_str(manifests.rules()).expect("YAML");
    let scaling = &manifests.find("HorizontalPodAutoscaler", "tidegate")["spec"];
    assert_eq!(rules["store"]["min_gateways"], scaling["minReplicas"]);
    let budget = &manifests.find("PodDisruptionBudget", "tidegate")["spec"]["minAvailable"];
    assert!(budget.as_u64() < scaling["minReplicas"].as_u64(), "no node could be drained");
    // Applying the manifests would reset the number.
    assert!(manifests.find("Deployment", "tidegate")["spec"]["replicas"].is_null());
}
