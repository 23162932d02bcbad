//! The customer in the access log: the id of verified credentials.

use serde_json::{Value, json};

use crate::access_log::{Logged, line};
use crate::support::process::RuleFile;

/// The log has the id of the customer, never the credentials.
#[tokio::test]
async fn verified_customer_is_in_the_access_log() {
    let (short, long) = ("customer\n1", "c".repeat(200));
    let keys = RuleFile::new("customer-keys", &format!("k-1: {{ id: \"customer\\n1\" }}\nk-2: {{ id: {long} }}\n"));
    let file = RuleFile::new(
        "customer",
        &format!(
            "listen: 127.0.0.1:0
admin: 127.0.0.1:0
access_log: stdout
upstreams: {{ origin: {{ targets: ['builtin:echo'] }} }}
identities: {{ keys: {{ header: x-api-key, file: {} }} }}
routes:
  - {{ name: open, match: {{ path: /open }}, upstream: origin }}
  - {{ name: all, match: {{}}, require: keys, upstream: origin }}\n",
            keys.path()
        ),
    );
    let gateway = Logged::run(file);
    for (path, key, status) in [("/1", "k-1", 200), ("/2", "k-2", 200), ("/3", "k-3", 401), ("/open", "k-1", 200)] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\n\r\n");
        assert_eq!(gateway.client().await.ask(request).await.status(), status, "{path}");
    }
    let lines = gateway.lines().await;
    let customer = |path: &str| line(&lines, &format!("GET {path}"))["customer"].clone();
    assert_eq!((customer("/1"), customer("/2")), (json!(short), json!(&long[..128])));
    assert_eq!((customer("/3"), customer("/open")), (Value::Null, Value::Null));
    assert!(!json!(lines).to_string().contains("k-1"), "{lines:?}");
}
