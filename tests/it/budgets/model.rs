//! An upstream that answers like a language model, and counts the tokens that it sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::wire::upstream::{Origin, OriginConnection};

/// The model. A request selects its response by members of the body: `tokens` of output, `status`, `silent` for no usage, and
/// `pause`, milliseconds between the events of a stream.
pub struct Model {
    pub origin: Origin,
    /// The tokens of all responses: input and output.
    pub sent: Arc<AtomicU64>,
}

/// The tokens of each input.
pub const INPUT: u64 = 10;

impl Model {
    pub async fn start() -> Self {
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        let origin = Origin::start(move |mut connection: OriginConnection| {
            let sent = Arc::clone(&counted);
            async move {
                while let Some(request) = connection.request().await {
                    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
                    if !respond(&mut connection, &body, &sent).await {
                        return;
                    }
                }
            }
        })
        .await;
        Self { origin, sent }
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Returns the body of the last request.
    pub fn last_body(&self) -> Value {
        serde_json::from_slice(&self.origin.last_request().body).expect("JSON")
    }
}

/// Responds to a request. Returns `false` if the connection has ended.
async fn respond(connection: &mut OriginConnection, body: &Value, sent: &AtomicU64) -> bool {
    let tokens = body["tokens"].as_u64().unwrap_or(20);
    let usage = json!({ "prompt_tokens": INPUT, "completion_tokens": tokens, "total_tokens": INPUT + tokens });
    let status = body["status"].as_u64().unwrap_or(200);
    if status == 200 {
        sent.fetch_add(INPUT, Ordering::SeqCst);
    }
    if body["stream"] == true {
        return stream(connection, body, &usage, sent).await;
    }
    let answer = match (status, &body["silent"]) {
        (200, Value::Bool(true)) => json!({ "choices": [] }),
        (200, _) => json!({ "choices": [{ "message": { "content": "a" } }], "usage": usage }),
        _ => json!({ "error": {} }),
    };
    if status == 200 {
        sent.fetch_add(tokens, Ordering::SeqCst);
    }
    let answer = answer.to_string();
    let head =
        format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", answer.len());
    connection.raw.send(head + &answer).await;
    true
}

/// Sends an event for each token, then the usage if the request asks for it.
async fn stream(connection: &mut OriginConnection, body: &Value, usage: &Value, sent: &AtomicU64) -> bool {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.raw.send(head).await;
    for _ in 0..usage["completion_tokens"].as_u64().unwrap_or(0) {
        sent.fetch_add(1, Ordering::SeqCst);
        let event = json!({ "choices": [{ "delta": { "content": "a" } }], "usage": null });
        connection.raw.send(chunk(&format!("data: {event}\n\n"))).await;
        sleep(Duration::from_millis(body["pause"].as_u64().unwrap_or(0))).await;
    }
    if body["stream_options"]["include_usage"] == true && body["silent"] != true {
        connection.raw.send(chunk(&format!("data: {}\n\n", json!({ "choices": [], "usage": usage })))).await;
    }
    connection.raw.send(chunk("data: [DONE]\n\n") + "0\r\n\r\n").await;
    true
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}
