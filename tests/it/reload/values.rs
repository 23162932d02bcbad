//! Values of a running program's rule file that come from variables and files.

use std::fs;
use std::path::Path;

use super::watched::Watched;
use crate::support::gateway::get;
use crate::support::process::{RuleFile, tidegate};
use crate::support::wire::raw::Raw;

const RULES: &str = "listen: 127.0.0.1:0
admin: ${TIDEGATE_TEST_ADMIN}
access_log: ${file:log.txt}
upstreams: { echo: { targets: ['builtin:echo'] }, other: { targets: ['${file:target.txt}'] } }
routes:
  - name: secret
    match: { path: /**, headers: { x-secret: '${file:secret.txt}' } }
    upstream: echo
    limits: [{ name: total, mode: OVERALL, rate: '${TIDEGATE_TEST_RATE:-7}', interval: '${file:interval.txt}' }]
";

#[tokio::test]
async fn changed_value_is_reloaded_and_never_shown() {
    let set_up = |folder: &Path| {
        let files = [
            ("rules.yaml", RULES),
            ("secret.txt", "hunter2-one\n"),
            ("interval.txt", "1h"),
            ("log.txt", "hunter2.log"),
            ("target.txt", "http://hunter2.example"),
        ];
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).expect("written"));
    };
    let mut watched = Watched::start_with("values", set_up, &[], &[("TIDEGATE_TEST_ADMIN", "127.0.0.1:0")]);
    watched.until_rate(7).await;
    let config = watched.until("a hash", |config| config["hash"].is_string()).await;
    assert!(config["access_log"].to_string().contains("/***\""), "{config}");
    assert_eq!(config["routes"][0]["limits"][0]["interval_ms"], 3_600_000);

    let request = "GET /api/v1/upstreams HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let upstreams = Raw::connect(watched.admin).await.ask(request).await.text();
    assert!(upstreams.contains("\"address\":\"***\"") && !upstreams.contains("hunter2"), "{upstreams}");

    let mut client = Raw::connect(watched.address).await;
    assert_eq!(get(&mut client, "/", "X-Secret: hunter2-one\r\n").await.status(), 200);
    let hash = config["hash"].clone();
    fs::write(watched.path("secret.txt"), "hunter2-two").expect("written");
    let config = watched.until("another hash", |config| config["hash"] != hash).await;
    assert_eq!(get(&mut client, "/", "X-Secret: hunter2-one\r\n").await.status(), 404);
    assert_eq!(get(&mut client, "/", "X-Secret: hunter2-two\r\n").await.status(), 200);
    assert!(!config.to_string().contains("hunter2"), "{config}");

    fs::write(watched.path("interval.txt"), "hunter2").expect("written");
    let config = watched.until("errors", |config| config["errors"][0].is_object()).await;
    let message = "`interval` must be a duration, not `***`";
    assert_eq!((&config["errors"][0]["message"], &config["errors"][0]["line"]), (&message.into(), &9.into()));
    fs::remove_file(watched.path("interval.txt")).expect("removed");
    let missing = |config: &serde_json::Value| config["errors"][0]["message"].as_str()?.find("cannot be read");
    watched.until("an unreadable file", |config| missing(config).is_some()).await;
    fs::write(watched.path("interval.txt"), "2h").expect("written");
    let new = |config: &serde_json::Value| config["routes"][0]["limits"][0]["interval_ms"] == 7_200_000;
    let config = watched.until("another interval", new).await;
    assert_eq!(config["errors"], serde_json::json!([]));
    fs::write(watched.path("log.txt"), "/proc/hunter2.log").expect("written");
    let config = watched.until("no access log", |config| config["errors"][0].is_object()).await;
    let message = config["errors"][0]["message"].as_str().expect("a message");
    assert!(message.contains("***") && !message.contains("hunter2"), "{message}");
    watched.program.signal("TERM");
    let log = std::io::read_to_string(&mut watched.program.stderr).expect("a log");
    assert!(log.contains("not `***`") && !log.contains("hunter2"), "{log}");
}

#[test]
fn commands_mask_values_of_files() {
    let secret = RuleFile::new("values-secret", "Api.Hunter2.example\n");
    let text = RULES.replace("headers: { x-secret: '${file:secret.txt}' }", "host: '${file:SECRET}'");
    let text =
        text.replace("SECRET", secret.path()).replace("${file:interval.txt}", "1h").replace("${file:log.txt}", "off");
    let text = text.replace("${file:target.txt}", "builtin:echo");
    let rules = RuleFile::new("values-rules", &text);
    let run = |arguments: &[&str]| {
        let output = tidegate(arguments).env("TIDEGATE_TEST_ADMIN", "off").output().expect("tidegate runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().expect("a code"), String::from_utf8(text).expect("UTF-8"))
    };
    let explained = run(&["explain", "-c", rules.path(), "GET", "http://example/"]);
    assert!(explained.1.contains("host ***") || explained.1.contains("`***`"), "{}", explained.1);
    assert!(!explained.1.to_lowercase().contains("hunter2"), "{}", explained.1);
    let listening = text.replace("127.0.0.1:0", &format!("'${{file:{}}}'", secret.path()));
    let changed = RuleFile::new("values-changed", &listening);
    let checked = run(&["check", changed.path()]);
    let message = format!("{}:1:9: `***` is not an address with a port\n", changed.path());
    assert!(checked.0 == 1 && checked.1.starts_with(&message), "{checked:?}");
    let log = RuleFile::new("values-log", "/proc/hunter2.log\n");
    let logging = text.replace("access_log: off", &format!("access_log: '${{file:{}}}'", log.path()));
    let started = run(&["run", RuleFile::new("values-start", &logging).path()]);
    assert!(started.0 == 2 && started.1.contains("***") && !started.1.contains("hunter2"), "{started:?}");
}
