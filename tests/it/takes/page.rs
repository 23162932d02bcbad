//! The examples of docs/take.md: all requests, in their order, have the responses of the page.

use serde_json::Value;
use tidegate::{Gateway, ListenAddress};

use crate::support::pages::{Page, root};
use crate::support::wire::raw::{Message, Raw};

/// How much time may pass from the first example to the last, in milliseconds.
const PATIENCE: u64 = 300_000;

/// An example: a request, and its response.
struct Example<'p> {
    path: &'p str,
    body: &'p str,
    status: &'p str,
    fields: Vec<(&'p str, &'p str)>,
    response: Value,
}

impl<'p> Example<'p> {
    fn parse(text: &'p str) -> Self {
        let (request, response) = text.split_once("\n\n").expect("a request and a response");
        let (start, body) = request.split_once('\n').expect("a body");
        let (head, json) = response.split_at(response.find("\n{").expect("a body"));
        let mut head = head.lines();
        let status = head.next().expect("a status");
        let fields = head.map(|line| line.split_once(": ").expect("a field")).collect();
        let response = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
        Self { path: start.strip_prefix("POST ").expect("POST"), body, status, fields, response }
    }

    async fn send(&self, address: std::net::SocketAddr) -> Message {
        let (path, body, length) = (self.path, self.body, self.body.len());
        let head = format!("POST {path} HTTP/1.1\r\nHost: service\r\nContent-Length: {length}\r\n\r\n");
        Raw::connect(address).await.ask(head + body).await
    }
}

/// Returns `true` if a value is as on the page. Times pass between the examples.
fn is_like(name: &str, found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            let is_like = |(name, value): (&String, &Value)| is_like(name, &found[name], value);
            found.keys().eq(expected.keys()) && expected.iter().all(is_like)
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, expected)| is_like("", found, expected))
        }
        (Value::Number(found), Value::Number(expected)) if name.ends_with("_ms") => {
            let (found, expected) = (found.as_u64().expect("a number"), expected.as_u64().expect("a number"));
            (expected.saturating_sub(PATIENCE)..=expected).contains(&found)
        }
        _ => found == expected,
    }
}

#[tokio::test]
async fn examples_of_the_page_have_their_responses() {
    let page = Page::read(root().join("docs/take.md"));
    let blocks = page.blocks();
    let rules = &blocks.iter().find(|block| block.language == "yaml").expect("a rule file").code;
    let rules = rules.replace("127.0.0.1:8080", "127.0.0.1:0");
    let more = "listen: 127.0.0.1:0\nupstreams: { api: { targets: ['builtin:echo'] } }\n";
    let config = Gateway::parse_config(&format!("{more}{rules}")).unwrap_or_else(|problems| panic!("{problems}"));
    let gateway = Gateway::start(config, 1).expect("a gateway");
    let address = gateway.service_http_address().as_ref().and_then(ListenAddress::tcp).expect("an address");
    let mut examples = 0;
    for block in blocks.iter().filter(|block| block.language == "http") {
        let example = Example::parse(&block.code);
        let response = example.send(address).await;
        let place = format!("docs/take.md:{}: {}", block.line, response.text());
        assert_eq!(response.status().to_string(), example.status, "{place}");
        for (name, value) in &example.fields {
            let found = response.field(name).expect(&place);
            let is_same = match (found.parse::<u64>(), value.parse::<u64>()) {
                (Ok(found), Ok(expected)) => (expected - PATIENCE / 1_000..=expected).contains(&found),
                _ => found == *value,
            };
            assert!(is_same, "{name}: {found}: {place}");
        }
        let found = serde_json::from_slice(&response.body).expect(&place);
        assert!(is_like("", &found, &example.response), "{place}");
        examples += 1;
    }
    assert_eq!(examples, 20);
    gateway.drain(std::time::Duration::from_millis(10)).expect("drained");
}
