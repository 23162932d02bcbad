//! The domains of a running rate limit service: changed, invalid and removed files of descriptors.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::watched::Watched;

const MAIN: &str = "listen: 127.0.0.1:0
admin: 127.0.0.1:0
service: { grpc: 127.0.0.1:0, descriptors: ratelimit/*.yaml }
routes: [{ name: all, match: {}, respond: { status: 204 } }]
";

fn domain(name: &str, rate: u32) -> String {
    let limit = format!("{{ unit: hour, requests_per_unit: {rate} }}");
    format!("# A domain\ndomain: {name}\ndescriptors: [{{ key: user, rate_limit: {limit} }}]\n")
}

/// Returns the names of the domains, each with the rate of its first limit.
fn domains(config: &Value) -> Value {
    let domains = config["service"]["domains"].as_array().expect("domains").iter();
    domains.map(|domain| json!([domain["name"], domain["limits"][0]["rate"]])).collect()
}

#[tokio::test]
async fn bad_file_of_descriptors_keeps_the_last_domains() {
    let set_up = |folder: &Path| {
        fs::create_dir(folder.join("ratelimit")).expect("a folder");
        fs::write(folder.join("rules.yaml"), MAIN).expect("written");
        fs::write(folder.join("ratelimit/b.yaml"), domain("b", 1)).expect("written");
    };
    let watched = Watched::start("service", set_up, &[]);
    let write = |name: &str, text: &str| fs::write(watched.path("ratelimit").join(name), text).expect("written");
    let until = |expected: Value| watched.until("domains", move |config| domains(config) == expected);
    let config = until(json!([["b", 1]])).await;
    let files = config["service"]["descriptors"].as_array().expect("files");
    assert!(files.len() == 1 && files[0].as_str().is_some_and(|file| file.ends_with("ratelimit/b.yaml")), "{config}");
    assert_eq!(config["include"], json!([]));
    write("a.yaml", &domain("a", 2));
    until(json!([["a", 2], ["b", 1]])).await;

    write("a.yaml", &domain("a", 3).replace("hour", "fortnight"));
    let config = watched.until("errors", |config| config["errors"][0].is_object()).await;
    let error = &config["errors"][0];
    assert!(error["file"].as_str().is_some_and(|file| file.ends_with("ratelimit/a.yaml")), "{error}");
    assert_eq!((&error["line"], &error["message"]), (&3.into(), &"`fortnight` is not a unit".into()));
    assert_eq!(domains(&config), json!([["a", 2], ["b", 1]]));

    write("a.yaml", &domain("a", 3));
    until(json!([["a", 3], ["b", 1]])).await;
    watched.until("no errors", |config| config["errors"] == json!([])).await;
    fs::remove_file(watched.path("ratelimit/b.yaml")).expect("removed");
    until(json!([["a", 3]])).await;
}

/// A start with an invalid file uses the saved texts, which include the files of descriptors.
#[tokio::test]
async fn saved_domains_are_used_after_a_restart() {
    let set_up = |folder: &Path| {
        fs::write(folder.join("rules.yaml"), MAIN.replace("ratelimit/*.yaml", "[b.yaml]")).expect("written");
        fs::write(folder.join("b.yaml"), domain("b", 7)).expect("written");
    };
    let state = |folder: &Path| vec!["--state".to_owned(), folder.join("state").to_str().expect("UTF-8").to_owned()];
    let mut watched = Watched::start_in("service-saved", set_up, state);
    watched.until("domains", |config| domains(config) == json!([["b", 7]])).await;
    watched.stop();
    fs::write(watched.path("b.yaml"), "domain: b\ndescriptors: {}\n").expect("written");
    watched.start_again();
    let config = watched.until("errors", |config| config["errors"][0].is_object()).await;
    assert_eq!(domains(&config), json!([["b", 7]]));
}
