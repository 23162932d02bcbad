//! The watched rule file of a running program: kinds of changes, invalid files, signals, and requests of operators.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::watched::Watched;
use crate::support::gateway::get;
use crate::support::process::{Program, output, tidegate};
use crate::support::wire::raw::Raw;
use crate::support::wire::until;

fn rules(rate: u32) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes:
  - name: all
    match: {{ path: /** }}
    upstream: echo
    limits: [{{ name: total, mode: OVERALL, rate: {rate}, interval: 1h }}]
"
    )
}

impl Watched {
    fn with_file(name: &str) -> Self {
        Self::start(name, |folder| fs::write(folder.join("rules.yaml"), rules(1)).expect("written"), &[])
    }
}

#[tokio::test]
async fn file_is_reloaded_after_each_kind_of_change() {
    let watched = Watched::with_file("kinds");
    let mut client = Raw::connect(watched.address).await;
    watched.write(&rules(2));
    watched.until_rate(2).await;
    fs::write(watched.path("new.yaml"), rules(3)).expect("written");
    fs::rename(watched.path("new.yaml"), watched.path("rules.yaml")).expect("renamed");
    watched.until_rate(3).await;
    fs::remove_file(watched.path("rules.yaml")).expect("removed");
    watched.write(&rules(4));
    watched.until_rate(4).await;
    watched.write("");
    watched.write(&rules(5));
    let config = watched.until_rate(5).await;
    assert_eq!(config["errors"], serde_json::json!([]));
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
}

#[tokio::test]
async fn symbolic_links_are_followed() {
    let watched = Watched::start(
        "links",
        |folder| {
            for rate in 1..=2 {
                fs::create_dir(folder.join(rate.to_string())).expect("a folder");
                fs::write(folder.join(format!("{rate}/rules.yaml")), rules(rate)).expect("written");
            }
            symlink("1", folder.join("..data")).expect("a link");
            symlink("..data/rules.yaml", folder.join("rules.yaml")).expect("a link");
        },
        &[],
    );
    // As in a Kubernetes volume.
    symlink("2", watched.path("..data_tmp")).expect("a link");
    fs::rename(watched.path("..data_tmp"), watched.path("..data")).expect("renamed");
    watched.until_rate(2).await;
    fs::write(watched.path("plain.yaml"), rules(3)).expect("written");
    symlink("plain.yaml", watched.path("link")).expect("a link");
    fs::rename(watched.path("link"), watched.path("rules.yaml")).expect("renamed");
    watched.until_rate(3).await;
    fs::write(watched.path("plain.yaml"), rules(4)).expect("written");
    watched.until_rate(4).await;
}

#[tokio::test]
async fn last_of_a_hundred_changes_wins() {
    let watched = Watched::with_file("hundred");
    let mut client = Raw::connect(watched.address).await;
    for rate in 2..=101 {
        if rate % 2 == 0 {
            watched.write(&rules(rate));
        } else {
            fs::write(watched.path("new.yaml"), rules(rate)).expect("written");
            fs::rename(watched.path("new.yaml"), watched.path("rules.yaml")).expect("renamed");
        }
        assert_eq!(get(&mut client, "/", "").await.status() / 100 % 2, 0, "200 or 429");
        sleep(Duration::from_millis(10)).await;
    }
    watched.until_rate(101).await;
    assert_eq!(watched.metric("tidegate_config_last_reload_successful").await, "1");
}

#[tokio::test]
async fn invalid_file_changes_nothing_and_is_reported() {
    let mut watched = Watched::with_file("invalid");
    let before = watched.until("the hash", |config| config["hash"].is_string()).await;
    assert_eq!(before["errors"], serde_json::json!([]));
    assert_eq!(before["hash"], blake3::hash(rules(1).as_bytes()).to_hex().as_str());
    watched.write(&rules(0));
    let config = watched.until("errors", |config| config["errors"][0].is_object()).await;
    let error = &config["errors"][0];
    assert_eq!((&error["line"], &error["file"].as_str().unwrap().ends_with("rules.yaml")), (&8.into(), &true));
    assert!(error["message"].as_str().unwrap().contains("rate") && error["help"].is_string(), "{error}");
    assert_eq!((&config["hash"], &config["applied_at"]), (&before["hash"], &before["applied_at"]));
    assert_eq!(config["routes"][0]["limits"][0]["rate"], 1);
    assert_eq!(watched.metric("tidegate_config_last_reload_successful").await, "0");
    assert_eq!(watched.metric("tidegate_config_reloads_total{result=\"failed\"}").await, "1");

    // The previous text is a valid file again, although it changes nothing.
    watched.write(&rules(1));
    watched.until("no errors", |config| config["errors"] == serde_json::json!([])).await;
    watched.write(&rules(2));
    watched.until_rate(2).await;
    assert_eq!(watched.metric("tidegate_config_last_reload_successful").await, "1");
    assert_eq!(watched.metric("tidegate_config_reloads_total{result=\"applied\"}").await, "1");
    assert_eq!(watched.metric("tidegate_config_reloads_total{result=\"unchanged\"}").await, "1");
    watched.program.signal("TERM");
    let log = std::io::read_to_string(&mut watched.program.stderr).expect("a log");
    assert_eq!(log.matches("ERROR reload: ").count(), 1, "{log}");
    assert!(log.contains("line=8") && log.contains("help="), "{log}");
    assert!(log.contains("limit all/total: changed (rate), 1 per 1h"), "{log}");
}

#[tokio::test]
async fn missing_file_is_an_error_until_it_is_back() {
    let watched = Watched::with_file("missing");
    fs::remove_file(watched.path("rules.yaml")).expect("removed");
    let config = watched.until("errors", |config| config["errors"][0].is_object()).await;
    assert!(config["errors"][0]["message"].as_str().unwrap().starts_with("cannot be read"), "{config}");
    watched.write(&rules(1));
    watched.until("no errors", |config| config["errors"] == serde_json::json!([])).await;
}

/// Creates a pipe, in place of the file at this path if there is one: a missing file would be another error.
fn make_pipe(path: &Path) {
    let pipe = path.with_extension("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success(), "{made}");
    fs::rename(pipe, path).expect("renamed");
}

/// Regression test: the watcher opened the pipe and waited forever. No reload was possible, and SIGTERM did not end the
/// process.
#[tokio::test]
async fn pipe_in_place_of_the_rule_file_is_an_error() {
    let mut watched = Watched::with_file("pipe");
    let has_error = |config: &serde_json::Value| config["errors"][0].is_object();
    for rate in [2, 3] {
        make_pipe(&watched.path("rules.yaml"));
        let config = watched.until("errors", has_error).await;
        assert_eq!(config["errors"][0]["message"], "cannot be read: it is not a regular file");
        fs::remove_file(watched.path("rules.yaml")).expect("removed");
        watched.write(&rules(rate));
        watched.until_rate(rate).await;
    }
    make_pipe(&watched.path("rules.yaml"));
    watched.until("errors", has_error).await;
    watched.program.signal("HUP");
    watched.program.signal("TERM");
    let log = std::io::read_to_string(&mut watched.program.stderr).expect("a log");
    assert!(log.contains("draining"), "{log}");
}

/// The gateway reads a pipe, as of `run -c <(command)`, once. It does not read or watch it later.
#[tokio::test]
async fn rules_from_a_pipe_are_read_once() {
    let set_up = |folder: &Path| {
        let path = folder.join("rules.yaml");
        make_pipe(&path);
        let write = |path: PathBuf| std::thread::spawn(move || fs::write(path, rules(1)).expect("written"));
        let writer = write(path.clone());
        let checked = output(&["check", path.to_str().expect("UTF-8")]);
        assert!(checked.status.success(), "{checked:?}");
        writer.join().expect("written");
        write(path);
    };
    let mut watched = Watched::start("from-pipe", set_up, &[]);
    watched.program.signal("HUP");
    let config = watched.until("errors", |config| config["errors"][0].is_object()).await;
    assert_eq!(config["errors"][0]["message"], "cannot be read: it is not a regular file");
    assert_eq!(config["routes"][0]["limits"][0]["rate"], 1);
    watched.program.signal("TERM");
    let log = std::io::read_to_string(&mut watched.program.stderr).expect("a log");
    assert_eq!(log.matches("ERROR reload: ").count(), 1, "{log}");
}

#[tokio::test]
async fn unwatched_file_is_reloaded_on_sighup_only() {
    let set_up = |folder: &Path| fs::write(folder.join("rules.yaml"), rules(1)).expect("written");
    let watched = Watched::start("unwatched", set_up, &["--no-watch"]);
    watched.write(&rules(2));
    // Another gateway, which watches its file, notices two later changes in the meantime.
    let other = Watched::with_file("unwatched-other");
    for rate in [2, 3] {
        other.write(&rules(rate));
        other.until_rate(rate).await;
    }
    assert_eq!(watched.config().await["routes"][0]["limits"][0]["rate"], 1);
    watched.program.signal("HUP");
    watched.until_rate(2).await;
    watched.program.signal("HUP");
    let deadline = Instant::now() + Duration::from_secs(10);
    while watched.metric("tidegate_config_reloads_total{result=\"unchanged\"}").await != "1" {
        assert!(Instant::now() < deadline, "an equal file counts as unchanged");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn access_log_moves_to_another_file() {
    let with_log = |folder: &Path, name: &str| format!("access_log: {}\n{}", folder.join(name).display(), rules(9));
    let set_up = |folder: &Path| fs::write(folder.join("rules.yaml"), with_log(folder, "one.log")).expect("written");
    let watched = Watched::start("access-log", set_up, &["--no-watch"]);
    let mut client = Raw::connect(watched.address).await;
    let log = |name: &str| fs::read_to_string(watched.path(name)).unwrap_or_default();
    get(&mut client, "/first", "").await;
    until(|| log("one.log").contains("GET /first")).await;
    watched.write(&with_log(&watched.folder, "missing/two.log"));
    watched.program.signal("HUP");
    watched.until("an error", |config| config["errors"][0].is_object()).await;
    watched.write(&with_log(&watched.folder, "two.log"));
    watched.program.signal("HUP");
    until(|| watched.path("two.log").exists()).await;
    watched.until("no errors", |config| config["errors"] == serde_json::json!([])).await;
    get(&mut client, "/second", "").await;
    until(|| log("two.log").contains("GET /second")).await;
    assert!(!log("one.log").contains("/second") && !log("two.log").contains("/first"));
}

#[tokio::test]
async fn reload_over_tcp_needs_a_token() {
    let watched = Watched::with_file("tcp");
    let request = "POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    let response = Raw::connect(watched.admin).await.ask(request).await;
    assert_eq!(response.status(), 403);
    assert_eq!(response.field("content-type").as_deref(), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_str(&response.text()).expect("JSON");
    assert!(problem["detail"].as_str().unwrap().contains("need a token"), "{problem}");
    let refused = output(&["reload", "--admin", &watched.admin.to_string()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("403"), "{refused:?}");
}

#[tokio::test]
async fn conditions_compare_the_hash_of_the_file_in_use() {
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let with_tokens = |folder: &Path, rate| {
        let admin =
            format!("admin: {{ address: '127.0.0.1:0', tokens: {{ file: {} }} }}", folder.join("tokens").display());
        rules(rate).replace("admin: 127.0.0.1:0", &admin)
    };
    let set_up = |folder: &Path| {
        fs::write(folder.join("tokens"), format!("ann:{TOKEN}\n")).expect("written");
        fs::write(folder.join("rules.yaml"), with_tokens(folder, 1)).expect("written");
    };
    let watched = Watched::start("conditions", set_up, &["--no-watch"]);
    let ask = async |method: &str, path: &str, fields: &str| {
        let head = format!("{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n");
        Raw::connect(watched.admin).await.ask(format!("{head}Authorization: Bearer {TOKEN}\r\n{fields}\r\n")).await
    };
    let config = ask("GET", "config", "").await;
    let tag = config.field("etag").expect("a tag");
    let shown: serde_json::Value = serde_json::from_str(&config.text()).expect("JSON");
    assert_eq!(shown["hash"].as_str().map(|hash| format!("\"{hash}\"")), Some(tag.clone()));
    for (tags, status) in [(format!("W/{tag}"), 304), (format!("\"x\", {tag}"), 304), ("\"x\"".to_owned(), 200)] {
        let response = ask("GET", "config", &format!("If-None-Match: {tags}\r\n")).await;
        assert_eq!((response.status(), response.field("etag").as_ref()), (status, Some(&tag)), "{tags}");
    }

    watched.write(&with_tokens(&watched.folder, 2));
    for (tags, status) in [(format!("W/{tag}"), 412), ("\"x\"".to_owned(), 412), (tag.clone(), 200), (tag.clone(), 412)]
    {
        let response = ask("POST", "reload", &format!("If-Match: {tags}\r\n")).await;
        assert_eq!(response.status(), status, "{tags}: {}", response.text());
    }
    assert_eq!(watched.config().await["routes"][0]["limits"][0]["rate"], 2);
    assert_eq!(ask("POST", "reload", "If-Match: *\r\n").await.status(), 200);

    // The tag does not cover the errors of a rejected file.
    watched.write(&with_tokens(&watched.folder, 0));
    assert_eq!(ask("POST", "reload", "").await.status(), 422);
    let rejected = ask("GET", "config", "If-None-Match: *\r\n").await;
    assert_eq!((rejected.status(), rejected.field("etag")), (200, None));
    let text = String::from_utf8(output(&["status", "--admin", &watched.admin.to_string()]).stdout).expect("UTF-8");
    let file = watched.path("rules.yaml");
    assert!(text.contains("was rejected") && text.contains(&format!("\n{}:8:", file.display())), "{text}");
    assert!(text.contains("\n  help: "), "{text}");
}

#[tokio::test]
async fn operator_reloads_over_a_unix_socket() {
    let folder = std::env::temp_dir().join(format!("tidegate-reload-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (path, socket) = (folder.join("rules.yaml"), folder.join("admin.sock"));
    let rules = |rate| rules(rate).replace("admin: 127.0.0.1:0", &format!("admin: 'unix:{}'", socket.display()));
    fs::write(&path, rules(1)).expect("written");
    let path = path.to_str().expect("UTF-8");
    let mut program = Program::start(&mut tidegate(&["run", "-c", path, "--no-watch"]));
    crate::support::process::address(&mut program.stderr, "listening on http://");
    let reload = || {
        let output = output(&["reload", "--admin", &format!("unix:{}", socket.display())]);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code().expect("a code"), text(output.stdout), text(output.stderr))
    };
    assert_eq!(reload(), (0, "no changes\n".to_owned(), String::new()));
    assert!(output(&["explain", "--live", "-c", path, "GET", "http://a/"]).status.success()); // it has the address
    fs::write(path, rules(2)).expect("written");
    let line = "limit all/total: changed (rate), 1 per 1h (token_bucket) -> 2 per 1h (token_bucket), permits in use \
                are kept\n";
    assert_eq!(reload(), (0, line.to_owned(), String::new()));
    fs::write(path, rules(0)).expect("written");
    let (code, out, errors) = reload();
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(errors.starts_with(&format!("{path}:8:")) && errors.contains("\n  help: "), "{errors}");
    drop(program);
    let (code, _, errors) = reload();
    assert!(code == 2 && errors.contains("cannot reach the gateway"), "{errors}");
    fs::remove_dir_all(&folder).expect("removed");
}
