//! Files of teams: an invalid one keeps its last valid version, and no other team notices.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::watched::Watched;
use crate::support::gateway::get;
use crate::support::process::output;
use crate::support::wire::raw::Raw;

const MAIN: &str = "listen: 127.0.0.1:0
admin: 127.0.0.1:0
include: [{ path: teams/*.yaml }]
upstreams: { echo: { targets: ['builtin:echo'] } }
limits: { daily: { mode: OVERALL, rate: 9, interval: day, algorithm: fixed_window } }
routes: [{ name: first, match: { path: /first }, upstream: echo, limits: [daily] }]
";

/// Returns the file of a team with a route on the path of this name.
fn team(path: &str, limit: &str) -> String {
    format!(
        "upstreams: {{ own: {{ targets: ['builtin:echo'] }} }}
routes:
  - name: all
    match: {{ path: /{path} }}
    upstream: own
    limits: [{limit}]
"
    )
}

fn rate(rate: u32) -> String {
    format!("{{ name: total, mode: OVERALL, rate: {rate}, interval: 1h }}")
}

/// Starts a program with these files of teams.
fn start(name: &str, main: &str, teams: &[(&str, &str)]) -> Watched {
    let set_up = |folder: &Path| {
        fs::create_dir(folder.join("teams")).expect("a folder");
        fs::write(folder.join("rules.yaml"), main).expect("written");
        for (name, text) in teams {
            fs::write(folder.join("teams").join(name).with_extension("yaml"), text).expect("written");
        }
    };
    Watched::start(name, set_up, &[])
}

impl Watched {
    fn write_team(&self, name: &str, text: &str) {
        fs::write(self.path("teams").join(name).with_extension("yaml"), text).expect("written");
    }

    fn until_routes(&self, expected: Value) -> impl Future<Output = Value> {
        self.until("routes", move |config| routes(config) == expected)
    }

    async fn until_valid(&self) -> Value {
        self.until("no errors", |config| config["errors"] == json!([])).await
    }

    async fn status_of(&self, path: &str) -> u16 {
        get(&mut Raw::connect(self.address).await, path, "").await.status()
    }
}

/// Returns the names of the routes, each with the rate of its first limit.
fn routes(config: &Value) -> Value {
    let routes = config["routes"].as_array().expect("routes").iter();
    routes.map(|route| json!([route["name"], route["limits"][0]["rate"]])).collect()
}

/// Returns the version of each team.
fn versions(config: &Value) -> Value {
    let teams = config["teams"].as_array().expect("teams").iter();
    teams.map(|team| json!([team["name"], team["version"]])).collect()
}

#[tokio::test]
async fn invalid_file_of_a_team_keeps_its_last_valid_version() {
    let watched = start("teams", MAIN, &[("a", &team("a", &rate(1))), ("b", &team("b", &rate(1)))]);
    let config = watched.until_routes(json!([["first", 9], ["a.all", 1], ["b.all", 1]])).await;
    assert_eq!(versions(&config), json!([["a", "current"], ["b", "current"]]));
    watched.write_team("a", &team("a", &rate(0)));
    let config = watched.until("an error", |config| config["errors"][0].is_object()).await;
    assert_eq!(routes(&config), json!([["first", 9], ["a.all", 1], ["b.all", 1]]));
    assert_eq!(versions(&config), json!([["a", "last_valid"], ["b", "current"]]));
    let error = &config["errors"][0];
    assert_eq!((&error["team"], &error["line"]), (&json!("a"), &json!(6)), "{error}");
    assert!(error["file"].as_str().expect("a file").ends_with("teams/a.yaml"), "{error}");

    // All other changes apply.
    watched.write_team("b", &team("b", &rate(2)));
    watched.write(&MAIN.replace("rate: 9", "rate: 8"));
    let config = watched.until_routes(json!([["first", 8], ["a.all", 1], ["b.all", 2]])).await;
    assert_eq!(config["errors"][0]["team"], "a", "{config}");
    assert_eq!(watched.metric("tidegate_config_team_file_valid{team=\"a\"}").await, "0");
    assert_eq!(watched.metric("tidegate_config_team_file_valid{team=\"b\"}").await, "1");
    assert_eq!(watched.metric("tidegate_config_last_reload_successful").await, "1");
    let status = output(&["status", "--admin", &watched.admin.to_string()]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("files of teams are invalid") && text.contains("teams/a.yaml:6:"), "{text}");
    let problem = text.lines().find(|line| line.starts_with("team_file  a  ")).expect("a problem");
    assert!(problem.contains("teams/a.yaml is invalid, the last valid version stays in use: line 6: "), "{problem}");
    assert_eq!(status.status.code(), Some(1));
    let rules = watched.path("rules.yaml");
    assert_eq!(output(&["check", rules.to_str().expect("UTF-8")]).status.code(), Some(1));

    watched.write_team("a", &team("a", &rate(3)));
    watched.until_routes(json!([["first", 8], ["a.all", 3], ["b.all", 2]])).await;
    assert_eq!(versions(&watched.until_valid().await), json!([["a", "current"], ["b", "current"]]));
    assert_eq!(output(&["status", "--admin", &watched.admin.to_string()]).status.code(), Some(0));
    assert_eq!(watched.metric("tidegate_config_team_file_valid{team=\"a\"}").await, "1");
    fs::remove_file(watched.path("teams/a.yaml")).expect("removed");
    watched.until_routes(json!([["first", 8], ["b.all", 2]])).await;
    assert_eq!(watched.metric("tidegate_config_team_file_valid{team=\"a\"}").await, "");
}

#[tokio::test]
async fn new_invalid_team_is_left_out_until_it_is_valid() {
    let watched = start("teams-new", MAIN, &[("a", &team("a", &rate(1)))]);
    watched.write_team("b", "routes: [");
    watched.write_team("a", &team("a", &rate(2)));
    let config = watched.until("both", |config| config["errors"][0]["team"] == "b" && routes(config)[1][1] == 2).await;
    assert_eq!(versions(&config), json!([["a", "current"], ["b", "none"]]));
    assert_eq!((watched.status_of("/a").await, watched.status_of("/b").await), (200, 404));
    watched.write("routes: [");
    watched.until("a rejected file", |config| config["errors"][0]["team"].is_null()).await;
    let status = output(&["status", "--admin", &watched.admin.to_string()]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    let kinds = text.lines().filter_map(|line| line.split_once("_file  ").map(|(kind, _)| kind));
    assert_eq!((kinds.collect::<Vec<_>>(), status.status.code()), (vec!["rule", "team"], Some(1)), "{text}");
    watched.write(MAIN);
    watched.write_team("b", &team("b", &rate(1)));
    watched.until_valid().await;
    assert_eq!(watched.status_of("/b").await, 200);
}

#[tokio::test]
async fn missing_file_of_a_named_team_keeps_its_rules() {
    let main =
        MAIN.replace("[{ path: teams/*.yaml }]", "[{ path: teams/a.yaml }, { path: teams/b.yaml, name: second }]");
    let watched = start("teams-missing", &main, &[("a", &team("a", &rate(1))), ("b", &team("b", &rate(1)))]);
    fs::remove_file(watched.path("teams/b.yaml")).expect("removed");
    let config = watched.until("an error", |config| config["errors"][0].is_object()).await;
    assert_eq!(versions(&config), json!([["a", "current"], ["second", "last_valid"]]));
    let message = config["errors"][0]["message"].as_str().expect("a message");
    assert!(message.ends_with("teams/b.yaml` cannot be read: No such file or directory (os error 2)"), "{message}");
    assert_eq!(watched.status_of("/b").await, 200);
    watched.program.signal("HUP");
    watched.write_team("a", &team("a", &rate(2)));
    watched.until_routes(json!([["first", 9], ["a.all", 2], ["second.all", 1]])).await;
}

/// The error is in the file of the other team, whose own change applies.
#[tokio::test]
async fn team_that_covers_the_routes_of_another_team_is_invalid() {
    let watched = start("teams-cover", MAIN, &[("a", &team("a", &rate(1))), ("b", &team("b", &rate(1)))]);
    watched.program.signal("STOP");
    watched.write_team("a", &team("**", &rate(2)));
    watched.write_team("b", &team("b", &rate(3)));
    watched.program.signal("CONT");
    watched.until_routes(json!([["first", 9], ["a.all", 1], ["b.all", 3]])).await;
    // Errors are published after the routes.
    let config = watched.until("an error", |config| config["errors"][0]["team"] == "a").await;
    assert_eq!(versions(&config), json!([["a", "last_valid"], ["b", "current"]]));
    let error = &config["errors"][0];
    assert!(error["message"].as_str().expect("a message").contains("route `b.all` is unreachable"), "{error}");
}

/// Neither version of the team fits the changed rule file, so nothing changes.
#[tokio::test]
async fn rule_file_that_contradicts_a_last_valid_version_is_rejected() {
    let watched = start("teams-shared", MAIN, &[("a", &team("a", "daily")), ("b", &team("b", &rate(1)))]);
    watched.write_team("a", &team("a", &rate(0)));
    watched.until("an error", |config| config["errors"][0]["team"] == "a").await;
    watched.write(&MAIN.replace("daily", "hourly"));
    let config = watched.until("rejected", |config| config["errors"][0].get("team").is_none()).await;
    assert_eq!(routes(&config), json!([["first", 9], ["a.all", 9], ["b.all", 1]]));
    assert_eq!(watched.metric("tidegate_config_last_reload_successful").await, "0");
    watched.write_team("a", &team("a", "hourly"));
    assert_eq!(versions(&watched.until_valid().await), json!([["a", "current"], ["b", "current"]]));
}

#[tokio::test]
async fn routes_of_a_team_match_only_its_hosts() {
    let main = MAIN.replace("{ path: teams/*.yaml }", "{ path: teams/a.yaml, hosts: a.example, upstreams: own }");
    let watched = start("teams-hosts", &main, &[("a", &team("**", &rate(9)))]);
    let ask = async |host: &str| {
        let request = format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n");
        Raw::connect(watched.address).await.ask(request).await.status()
    };
    assert_eq!((ask("a.example").await, ask("b.example").await, ask("first.example").await), (200, 404, 404));
    watched.write_team("a", &team("**", &rate(9)).replace("match: {", "match: { host: b.example,"));
    let config = watched.until("an error", |config| config["errors"][0].is_object()).await;
    assert_eq!(config["errors"][0]["message"], "the host `b.example` does not belong to team `a`");
}
