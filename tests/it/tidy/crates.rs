//! Which crates of others a layer may know.

use super::samples::sample;
use super::{Source, code_of, is_test_file, layer, module_of, starts_a_word, without_tests};

/// Crates that not every layer may know: which, the lowest layer that may, and why not those below.
const CRATES: &[(&str, usize, &str)] = &[
    ("http", 1, "arithmetic and time have no requests"),
    ("ipnet", 0, "addresses are part of keys"),
    ("bytes", 2, "bytes on the way are IO"),
    ("http_body", 2, "bodies are IO"),
    ("http_body_util", 2, "bodies are IO"),
    ("httparse", 2, "heads are read by IO"),
    ("deadpool_redis", 2, "a store is IO"),
    ("socket2", 2, "sockets are IO"),
    ("rustls", 2, "bytes on the way are IO"),
    ("tokio_rustls", 2, "bytes on the way are IO"),
    ("tracing", 2, "what has no IO returns what there is to say"),
    ("saphyr_parser", 3, "only the rule file is YAML"),
    ("serde_yaml", 3, "only the rule file is YAML"),
    ("tower", 4, "a service is what stands around a decision"),
    ("axum", 4, "only the layer and the admin pages meet it"),
    ("serde_json", 2, "answers of ours are IO"),
    ("h2", 2, "frames are IO"),
    ("clap", 6, "only the program has arguments"),
    ("rustix", 6, "only the program asks what it may open"),
    ("listenfd", 6, "only the program inherits sockets"),
    ("tracing_subscriber", 6, "only the program says where logs go"),
];

/// Crates of a higher layer that are named outside tests.
pub(super) fn strange(source: &Source) -> Vec<String> {
    let own = source.path.starts_with("src/").then(|| module_of(&source.path)).and_then(|module| layer(&module));
    let Some(own) = own.filter(|_| !is_test_file(&source.path)) else { return Vec::new() };
    let code: Vec<String> = without_tests(&source.text).lines().map(|line| code_of(line).to_owned()).collect();
    let names = |line: &str, name: &str| {
        let name = format!("{name}::");
        line.match_indices(&name).any(|(at, _)| starts_a_word(line, at))
    };
    let higher = CRATES.iter().filter(|(_, lowest, _)| *lowest > own);
    let found = higher.flat_map(|(name, _, why)| {
        let lines = code.iter().enumerate().filter(move |(_, line)| names(line, name));
        lines.map(move |(number, _)| format!("{}:{}: `{name}`, but {why}", source.path, number + 1))
    });
    found.collect()
}

// === the rule finds what it looks for ===

#[test]
fn a_crate_of_a_higher_layer_is_found() {
    let text = "use http::StatusCode;\nfn f(_: crate::http::A, _: axum::Router) {}\n#[cfg(test)]\nmod tests {\nuse http::A;\n}";
    assert_eq!(strange(&sample("src/limit/mod.rs", text)).len(), 2);
    assert_eq!(strange(&sample("src/route/mod.rs", text)).len(), 1);
    assert_eq!(strange(&sample("src/layer/mod.rs", text)).len(), 0);
}
