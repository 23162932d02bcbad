//! An upstream that answers like a language model, and counts the tokens that it sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::wire::upstream::{Origin, OriginConnection};

/// The model. A request selects its response by members of the body: `tokens` of output, `status`, `silent` for no usage, and
/// `held` for a stream whose events wait until the test [releases](Model::release) them, or for another response that waits so.
pub struct Model {
    pub origin: Origin,
    counts: Arc<Counts>,
}

/// The responses of a model.
struct Counts {
    /// The tokens of all responses: input and output.
    sent: AtomicU64,
    streams: AtomicU64,
    released: Semaphore,
}

impl Default for Counts {
    fn default() -> Self {
        Self { sent: AtomicU64::new(0), streams: AtomicU64::new(0), released: Semaphore::new(0) }
    }
}

/// The tokens of each input.
pub const INPUT: u64 = 10;

impl Model {
    pub async fn start() -> Self {
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        let origin = Origin::start(move |mut connection: OriginConnection| {
            let counts = Arc::clone(&counted);
            async move {
                while let Some(request) = connection.request().await {
                    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
                    if !respond(&mut connection, &body, &counts).await {
                        return;
                    }
                }
            }
        })
        .await;
        Self { origin, counts }
    }

    /// Returns the tokens of all responses: input and output.
    pub fn sent(&self) -> u64 {
        self.counts.sent.load(Ordering::SeqCst)
    }

    /// Returns the number of streams that have begun, and of other responses that were held.
    pub fn streams(&self) -> u64 {
        self.counts.streams.load(Ordering::SeqCst)
    }

    /// Holds all further events.
    pub fn hold(&self) {
        self.counts.released.forget_permits(usize::MAX);
    }

    /// Sends this many of the events and responses that are held.
    pub fn release(&self, events: u64) {
        self.counts.released.add_permits(events.try_into().expect("a number"));
    }

    /// Returns the body of the last request.
    pub fn last_body(&self) -> Value {
        serde_json::from_slice(&self.origin.last_request().body).expect("JSON")
    }
}

/// Responds to a request. Returns `false` if the connection has ended.
async fn respond(connection: &mut OriginConnection, body: &Value, counts: &Counts) -> bool {
    let (tokens, sent) = (body["tokens"].as_u64().unwrap_or(20), &counts.sent);
    let usage = json!({ "prompt_tokens": INPUT, "completion_tokens": tokens, "total_tokens": INPUT + tokens });
    let status = body["status"].as_u64().unwrap_or(200);
    if status == 200 {
        sent.fetch_add(INPUT, Ordering::SeqCst);
    }
    if body["stream"] == true {
        return stream(connection, body, &usage, counts).await;
    }
    if body["held"] == true {
        counts.streams.fetch_add(1, Ordering::SeqCst);
        counts.released.acquire().await.expect("it stays open").forget();
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
async fn stream(connection: &mut OriginConnection, body: &Value, usage: &Value, counts: &Counts) -> bool {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.raw.send(head).await;
    counts.streams.fetch_add(1, Ordering::SeqCst);
    for _ in 0..usage["completion_tokens"].as_u64().unwrap_or(0) {
        if body["held"] == true {
            counts.released.acquire().await.expect("it stays open").forget();
        }
        counts.sent.fetch_add(1, Ordering::SeqCst);
        let event = json!({ "choices": [{ "delta": { "content": "a" } }], "usage": null });
        connection.raw.send(chunk(&format!("data: {event}\n\n"))).await;
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
