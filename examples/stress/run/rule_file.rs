//! Writes the rule files of gateways under load.

use std::fmt::Write;

use super::checker::Algorithm;

/// Returns a rule file with an access log, the settings of the store, and routes with their limits.
pub fn rule_file<'r>(
    access_log: &str,
    store: &str,
    routes: impl IntoIterator<Item = (&'r str, Vec<String>)>,
) -> String {
    let mut text = format!(
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
access_log: '{access_log}'
store: {{ {store} }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes:\n"
    );
    for (name, limits) in routes {
        let limits: String = limits.iter().map(|limit| format!("\n      - {limit}")).collect();
        let limits = if limits.is_empty() { limits } else { format!("\n    limits:{limits}") };
        // Writing to a string does not fail.
        _ = writeln!(text, "  - name: {name}\n    match: {{ path: /{name}/** }}\n    upstream: echo{limits}");
    }
    text
}

impl Algorithm {
    /// Returns the keys of the algorithm. The queue is so short that no request waits for a whole interval.
    pub fn keys(self, interval: u64) -> String {
        match self {
            Self::TokenBucket => "token_bucket".to_owned(),
            Self::SlidingWindow { segments } => format!("sliding_window, segments: {segments}"),
            Self::FixedWindow => "fixed_window".to_owned(),
            Self::Gcra { burst } => format!("gcra, burst: {burst}"),
            Self::LeakyBucket { queue } => format!("leaky_bucket, queue: {queue}, max_wait: {interval}ms"),
        }
    }
}
