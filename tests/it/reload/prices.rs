//! Files of prices: a change is a reload, and errors keep the last rules.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::watched::Watched;

const MAIN: &str = "listen: 127.0.0.1:0
admin: 127.0.0.1:0
upstreams: { echo: { targets: ['builtin:echo'] } }
routes:
  - name: chat
    match: { path: /chat }
    upstream: echo
    limits: [{ name: money, mode: OVERALL, rate: 1000, interval: 1h, permits: {
      usage: openai, prices: prices/models.yaml, reserve: { output: 10 } } }]
";

fn prices(output: &str) -> String {
    format!("models:\n  a: {{ input: 1, output: {output} }}\n")
}

#[tokio::test]
async fn changed_prices_are_a_reload() {
    let set_up = |folder: &Path| {
        fs::create_dir(folder.join("prices")).expect("a folder");
        fs::write(folder.join("rules.yaml"), MAIN).expect("written");
        fs::write(folder.join("prices/models.yaml"), prices("2")).expect("written");
    };
    let watched = Watched::start("prices", set_up, &[]);
    let file = watched.path("prices/models.yaml");
    watched
        .until("the limit", |config| config["routes"][0]["limits"][0]["permits"]["prices"] == "prices/models.yaml")
        .await;

    fs::write(&file, prices("x")).expect("written");
    let config = watched.until("errors", |config| config["errors"][0].is_object()).await;
    let error = &config["errors"][0];
    assert!(error["file"].as_str().expect("a file").ends_with("prices/models.yaml"), "{error}");
    assert_eq!(error["line"], 2, "{error}");

    // Ten tokens would cost more than the rate.
    fs::write(&file, prices("200")).expect("written");
    watched.until("another error", |config| config["errors"][0]["line"] == 9).await;

    fs::write(&file, prices("3")).expect("written");
    watched.until("no errors", |config| config["errors"] == json!([])).await;
    assert_eq!(watched.metric("tidegate_config_reloads_total{result=\"applied\"}").await, "1");

    fs::remove_file(&file).expect("removed");
    watched.until("a missing file", |config| config["errors"][0].is_object()).await;
}
