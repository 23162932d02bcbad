//! Included files of a running program: changed, new and removed ones.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::watched::Watched;
use crate::support::wire::raw::Raw;

const MAIN: &str = "listen: 127.0.0.1:0
admin: 127.0.0.1:0
include: conf.d/*.yaml
upstreams: { echo: { targets: ['builtin:echo'] } }
routes: [{ name: first, match: { path: /first }, upstream: echo }]
";

fn route(name: &str, rate: u32) -> String {
    let limits = format!("[{{ name: total, mode: OVERALL, rate: {rate}, interval: 1h }}]");
    format!(
        "# Included\nroutes:\n  - {{ name: {name}, match: {{ path: /{name} }}, upstream: echo, limits: {limits} }}\n"
    )
}

/// Returns the names of the routes, each with the rate of its first limit.
fn routes(config: &serde_json::Value) -> serde_json::Value {
    let routes = config["routes"].as_array().expect("routes").iter();
    routes.map(|route| json!([route["name"], route["limits"][0]["rate"]])).collect()
}

#[tokio::test]
async fn included_files_are_reloaded_when_they_change_come_or_go() {
    let set_up = |folder: &Path| {
        fs::create_dir(folder.join("conf.d")).expect("a folder");
        fs::write(folder.join("rules.yaml"), MAIN).expect("written");
        fs::write(folder.join("conf.d/b.yaml"), route("b", 1)).expect("written");
    };
    let watched = Watched::start("include", set_up, &[]);
    let write = |name: &str, text: &str| fs::write(watched.path("conf.d").join(name), text).expect("written");
    let until = |expected: serde_json::Value| watched.until("routes", move |config| routes(config) == expected);
    until(json!([["first", null], ["b", 1]])).await;
    write("b.yaml", &route("b", 2));
    until(json!([["first", null], ["b", 2]])).await;
    write("a.yaml", &route("a", 3));
    let config = until(json!([["first", null], ["a", 3], ["b", 2]])).await;
    assert_eq!(config["include"].as_array().map(Vec::len), Some(2), "{config}");
    let request = "GET /api/v1/limits HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let limits = Raw::connect(watched.admin).await.ask(request).await.text();
    assert!(limits.contains("conf.d/a.yaml") && limits.contains("\"line\":3"), "{limits}");

    write("a.yaml", &route("b", 3).replace("path: /b", "path: /c"));
    let config = watched.until("errors", |config| config["errors"][0].is_object()).await;
    let error = &config["errors"][0];
    assert!(error["file"].as_str().expect("a file").ends_with("conf.d/b.yaml"), "{error}");
    assert_eq!((&error["line"], &error["column"]), (&3.into(), &13.into()));
    let message = error["message"].as_str().expect("a message");
    assert!(message.starts_with("route `b` is already on line 3 of `"), "{message}");
    assert!(message.ends_with("/conf.d/a.yaml`"), "{message}");
    fs::remove_file(watched.path("conf.d/a.yaml")).expect("removed");
    let config = until(json!([["first", null], ["b", 2]])).await;
    watched.until("no errors", |config| config["errors"] == json!([])).await;
    assert_eq!(config["include"].as_array().map(Vec::len), Some(1), "{config}");
}

#[tokio::test]
async fn included_files_of_a_kubernetes_volume_change_together() {
    let set_up = |folder: &Path| {
        fs::write(folder.join("rules.yaml"), MAIN).expect("written");
        let conf = folder.join("conf.d");
        for (version, rate) in [("..1", 1), ("..2", 2)] {
            fs::create_dir_all(conf.join(version)).expect("a folder");
            for name in ["a", "b"] {
                fs::write(conf.join(version).join(format!("{name}.yaml")), route(name, rate)).expect("written");
            }
        }
        symlink("..1", conf.join("..data")).expect("a link");
        for name in ["a.yaml", "b.yaml"] {
            symlink(format!("..data/{name}"), conf.join(name)).expect("a link");
        }
    };
    let watched = Watched::start("include-volume", set_up, &[]);
    watched.until("version 1", |config| routes(config) == json!([["first", null], ["a", 1], ["b", 1]])).await;
    symlink("..2", watched.path("conf.d/..data_tmp")).expect("a link");
    fs::rename(watched.path("conf.d/..data_tmp"), watched.path("conf.d/..data")).expect("renamed");
    watched.until("version 2", |config| routes(config) == json!([["first", null], ["a", 2], ["b", 2]])).await;
    assert_eq!(watched.metric("tidegate_config_reloads_total{result=\"applied\"}").await, "1");
}

#[tokio::test]
async fn errors_of_unreadable_included_files_come_and_go() {
    let set_up = |folder: &Path| {
        fs::create_dir(folder.join("conf.d")).expect("a folder");
        fs::write(folder.join("rules.yaml"), MAIN).expect("written");
        fs::write(folder.join("conf.d/b.yaml"), route("b", 1)).expect("written");
    };
    let watched = Watched::start("include-unreadable", set_up, &[]);
    let new = watched.path("conf.d/new.yaml");
    let until_error = |message: &'static str| {
        let has_message = move |config: &serde_json::Value| {
            config["errors"][0]["message"].as_str().is_some_and(|shown| shown.contains(message))
        };
        watched.until(message, has_message)
    };
    let until_valid = || watched.until("no errors", |config| config["errors"] == json!([]));
    let success = "tidegate_config_last_reload_successful";

    // The watch reports the error.
    symlink("missing", &new).expect("a link");
    until_error("conf.d/new.yaml` cannot be read: No such file").await;
    assert_eq!(watched.metric(success).await, "0");
    fs::remove_file(&new).expect("removed");
    until_valid().await;
    assert_eq!(watched.metric(success).await, "1");

    // A reload on a signal reports the error, and the watch its end.
    symlink("missing", &new).expect("a link");
    watched.program.signal("HUP");
    until_error("conf.d/new.yaml` cannot be read: No such file").await;
    fs::remove_file(&new).expect("removed");
    until_valid().await;
    assert_eq!(watched.metric(success).await, "1");

    // A pipe without a writer does not block reloads.
    assert!(Command::new("mkfifo").arg(&new).status().expect("mkfifo runs").success());
    until_error("conf.d/new.yaml` is not a regular file").await;
    fs::remove_file(&new).expect("removed");
    until_valid().await;
}

#[tokio::test]
async fn optional_files_and_folders_can_appear_later() {
    let main = MAIN.replace("include: conf.d/*.yaml", "include: ['?conf.d/*.yaml', '?extra.yaml']");
    let set_up = |folder: &Path| fs::write(folder.join("rules.yaml"), &main).expect("written");
    let watched = Watched::start("optional-include", set_up, &[]);
    let until = |expected: serde_json::Value| watched.until("routes", move |config| routes(config) == expected);
    until(json!([["first", null]])).await;
    fs::write(watched.path("extra.yaml"), route("extra", 1)).expect("written");
    until(json!([["first", null], ["extra", 1]])).await;
    fs::create_dir(watched.path("conf.d")).expect("a folder");
    fs::write(watched.path("conf.d/a.yaml"), route("a", 2)).expect("written");
    until(json!([["first", null], ["a", 2], ["extra", 1]])).await;
    fs::remove_file(watched.path("extra.yaml")).expect("removed");
    until(json!([["first", null], ["a", 2]])).await;
    // Without the mark, a missing folder is an error, and the last rules stay in use.
    fs::remove_dir_all(watched.path("conf.d")).expect("removed");
    watched.write(MAIN);
    let config = watched.until("errors", |config| config["errors"][0].is_object()).await;
    let message = config["errors"][0]["message"].as_str().expect("a message");
    assert!(message.contains("conf.d` cannot be read: No such file or directory"), "{message}");
}
