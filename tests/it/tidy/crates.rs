//! Checks which dependencies each layer may use.

use super::samples::sample;
use super::{Source, code_of, is_test_file, layer, module_of, starts_a_word, without_tests};

/// Restricted crates: the name, the lowest layer that may use the crate, and why lower layers may not.
const CRATES: &[(&str, usize, &str)] = &[
    ("http", 1, "arithmetic and time have no requests"),
    ("ipnet", 0, "addresses are parts of keys"),
    ("bytes", 2, "buffers of connections are IO"),
    ("http_body", 2, "bodies are IO"),
    ("http_body_util", 2, "bodies are IO"),
    ("httparse", 2, "parsing of requests is IO"),
    ("deadpool_redis", 2, "a store is IO"),
    ("socket2", 2, "sockets are IO"),
    ("rustls", 2, "TLS is IO"),
    ("tokio_rustls", 2, "TLS is IO"),
    ("tracing", 2, "code without IO returns its findings instead of logging them"),
    ("flate2", 3, "only the logs of a replay are compressed"),
    ("ruzstd", 3, "only the logs of a replay are compressed"),
    ("saphyr_parser", 3, "only the rule file is YAML"),
    ("serde_yaml", 3, "only the rule file is YAML"),
    ("tower", 4, "services wrap decisions"),
    ("axum", 4, "only the layer and the admin interface use it"),
    ("serde_json", 1, "tokens have claims in JSON"),
    ("h2", 2, "frames are IO"),
    ("utoipa", 5, "only the admin API is described"),
    ("utoipa_axum", 5, "only the admin API is described"),
    ("clap", 6, "only the program has arguments"),
    ("clap_complete", 6, "only the program has arguments"),
    ("clap_mangen", 6, "only the program has arguments"),
    ("indicatif", 6, "only the program has a terminal"),
    ("rustix", 2, "only the program and the byte streams use system calls"),
    ("listenfd", 6, "only the program inherits sockets"),
    ("tracing_subscriber", 6, "only the program configures logging"),
];

/// Returns the uses of crates that belong to a higher layer, without tests.
pub(super) fn find_higher_crates(source: &Source) -> Vec<String> {
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
        lines.map(move |(number, _)| format!("{}:{}: `{name}`: {why}", source.path, number + 1))
    });
    found.collect()
}

// === test of the check itself ===

#[test]
fn crate_of_a_higher_layer_is_found() {
    let code = "use tower::Layer;\nfn f(_: crate::tower::A, _: rustls::A) {}\n";
    let text = &format!("{code}#[cfg(test)]\nmod tests {{\nuse tower::A;\n}}");
    assert_eq!(find_higher_crates(&sample("src/overrides/mod.rs", text)).len(), 2);
    assert_eq!(find_higher_crates(&sample("src/store/mod.rs", text)).len(), 1);
    assert_eq!(find_higher_crates(&sample("src/layer/mod.rs", text)).len(), 0);
}
