//! The timeouts of a rate limit service and of its store, of which a file can have one, both or none.

use std::time::Duration;

use crate::{Config, LibraryFiles};
use tidegate_rules::settings::store::StoreSettings;

/// Returns the timeouts of the store and of the service, in milliseconds.
fn timeouts(store: &str, service: &str, more: &str) -> (u128, u128) {
    let domains =
        "domains: [{ name: d, limits: [{ name: l, match: { k: v }, mode: OVERALL, rate: 1, interval: 1s }] }]";
    let text = format!(
        "store: {{ url: 'redis://127.0.0.1'{store} }}\nservice: {{ grpc: 127.0.0.1:8081, {domains}{service} }}\n{more}"
    );
    let config = Config::parse_for_gateway(&text, &LibraryFiles).unwrap_or_else(|problems| panic!("{problems}"));
    let StoreSettings::Redis(store) = config.store else { panic!("a store in memory") };
    let service = config.service.expect("a service").domains.answers().timeout;
    let [store, service] = [store.timeout, service].map(|timeout: Duration| timeout.as_millis());
    (store, service)
}

#[test]
fn one_timeout_is_the_default_of_the_other() {
    let routes = "listen: 127.0.0.1:80\nroutes: [{ name: r, match: {}, respond: { status: 200 } }]\n";
    let [store, service] = [", timeout: 80ms", ", timeout: 30ms"];
    for (more, expected) in
        [("", [(12, 12), (80, 80), (30, 30), (80, 30)]), (routes, [(50, 12), (80, 80), (50, 30), (80, 30)])]
    {
        let found = [("", ""), (store, ""), ("", service), (store, service)];
        assert_eq!(found.map(|(store, service)| timeouts(store, service, more)), expected, "{more}");
    }
}
