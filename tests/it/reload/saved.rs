//! `--state` keeps the rules in use for a start with an invalid rule file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use super::watched::Watched;
use crate::support::gateway::get;
use crate::support::process::output;
use crate::support::wire::raw::Raw;

const MAIN: &str = "listen: 127.0.0.1:0
admin: 127.0.0.1:0
include: { path: teams/a.yaml }
store: { url: memory, key_secret: '${file:secret}' }
routes: [{ name: main, match: { path: /main }, respond: { status: 201 } }]
";

const TEAM: &str = "routes: [{ name: all, match: { path: /team }, respond: { status: 202 } }]\n";

fn set_up(folder: &Path) {
    fs::create_dir(folder.join("teams")).expect("a folder");
    fs::write(folder.join("rules.yaml"), MAIN).expect("written");
    fs::write(folder.join("teams/a.yaml"), TEAM).expect("written");
    fs::write(folder.join("secret"), "hunter2hunter2hunter2").expect("written");
}

/// Starts a program that has saved its rules.
fn start(name: &str) -> Watched {
    Watched::start_in(name, set_up, |folder| vec!["--state".to_owned(), format!("{}/state", folder.display())])
}

async fn statuses(watched: &Watched) -> [u16; 2] {
    let mut client = Raw::connect(watched.address).await;
    [get(&mut client, "/main", "").await.status(), get(&mut client, "/team", "").await.status()]
}

#[tokio::test]
async fn start_with_an_invalid_rule_file_uses_the_saved_rules() {
    let mut watched = start("saved");
    let saved = watched.path("state.rules");
    let text = fs::read_to_string(&saved).expect("a file");
    assert!(text.contains("${file:secret}") && !text.contains("hunter2"), "{text}");
    assert_eq!(fs::metadata(&saved).expect("a file").permissions().mode() & 0o777, 0o600);

    watched.stop();
    watched.write(&MAIN.replace("status: 201", "status: 20"));
    fs::remove_file(watched.path("teams/a.yaml")).expect("removed");
    let rules = watched.path("rules.yaml").to_str().expect("UTF-8").to_owned();
    let state = watched.path("state").to_str().expect("UTF-8").to_owned();
    let strict = output(&["run", &rules, "--state", &state, "--strict"]);
    assert_eq!(strict.status.code(), Some(1), "{strict:?}");
    let log = watched.start_again();
    assert!(log.contains("rule file is invalid, the saved rules are in use"), "{log}");
    assert!(log.contains("`status` must be a whole number from 200 to 599"), "{log}");
    assert_eq!(statuses(&watched).await, [201, 202]);
    let config = watched.config().await;
    assert!(config["errors"][0]["file"].as_str().expect("a file").ends_with("rules.yaml"), "{config}");
    assert_eq!(watched.metric("tidegate_config_last_reload_successful").await, "0");
    assert_eq!(fs::read_to_string(&saved).expect("a file"), text);

    // A valid file replaces the saved rules.
    fs::write(watched.path("teams/a.yaml"), TEAM.replace("202", "203")).expect("written");
    watched.write(&MAIN.replace("status: 201", "status: 204"));
    watched.until("no errors", |config| config["errors"] == json!([])).await;
    assert_eq!(statuses(&watched).await, [204, 203]);
    assert!(fs::read_to_string(&saved).expect("a file").contains("203"));
    assert_eq!(watched.metric("tidegate_config_last_reload_successful").await, "1");
}

#[tokio::test]
async fn start_with_an_invalid_file_of_a_team_uses_its_saved_version() {
    let mut watched = start("saved-team");
    watched.stop();
    fs::write(watched.path("teams/a.yaml"), "routes: [").expect("written");
    watched.write(&MAIN.replace("status: 201", "status: 204"));
    let log = watched.start_again();
    assert!(log.contains("file of a team is invalid"), "{log}");
    assert_eq!(statuses(&watched).await, [204, 202]);
    let config = watched.config().await;
    assert_eq!((&config["teams"][0]["version"], &config["errors"][0]["team"]), (&json!("last_valid"), &json!("a")));
    // The start has saved the valid version of the team, not the invalid one.
    let text = fs::read_to_string(watched.path("state.rules")).expect("a file");
    assert!(text.contains("status: 202") && text.contains("status: 204"), "{text}");
}

#[tokio::test]
async fn damaged_saved_rules_are_not_used() {
    let mut watched = start("saved-damaged");
    watched.stop();
    let saved = watched.path("state.rules");
    fs::write(&saved, fs::read_to_string(&saved).expect("a file").replace("201", "200")).expect("written");
    watched.write("routes: [");
    let rules = watched.path("rules.yaml").to_str().expect("UTF-8").to_owned();
    let state = watched.path("state").to_str().expect("UTF-8").to_owned();
    let output = output(&["run", &rules, "--state", &state]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("state.rules: the checksum does not match") && text.contains("not YAML"), "{text}");
}

/// Without `--state`, the start fails as before.
#[tokio::test]
async fn start_without_saved_rules_needs_valid_teams() {
    let mut watched = Watched::start("saved-none", set_up, &[]);
    watched.stop();
    fs::write(watched.path("teams/a.yaml"), "routes: [").expect("written");
    let output = output(&["run", watched.path("rules.yaml").to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(1));
}
