//! Streams that reserve their output in slices, and end when the budget has no more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;

use super::operators::figures;
use super::{patient, remaining, request, until_remaining};
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::eventually;
use crate::support::wire::upstream::{Origin, OriginConnection};

const INPUT: u64 = 10;

/// A model that sends each token after its client has received the one before, as long as the connection is open.
struct PacedModel {
    origin: Origin,
    paces: Arc<[Semaphore]>,
    /// The tokens of all responses: input and output.
    sent: Arc<AtomicU64>,
}

impl PacedModel {
    async fn start(streams: usize) -> Self {
        let paces: Arc<[Semaphore]> = (0..streams).map(|_| Semaphore::new(1)).collect();
        let sent = Arc::<AtomicU64>::default();
        let (all, count) = (Arc::clone(&paces), Arc::clone(&sent));
        let origin = Origin::start(move |mut connection: OriginConnection| {
            let (paces, sent) = (Arc::clone(&all), Arc::clone(&count));
            async move {
                while let Some(request) = connection.request().await {
                    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
                    let pace = &paces[usize::try_from(body["id"].as_u64().expect("an id")).expect("a position")];
                    if !send(&mut connection, &body, pace, &sent).await {
                        return;
                    }
                }
            }
        });
        Self { origin: origin.await, paces, sent }
    }
}

/// Sends a stream of `tokens`. Returns `false` if the connection was closed.
async fn send(connection: &mut OriginConnection, body: &Value, pace: &Semaphore, sent: &AtomicU64) -> bool {
    sent.fetch_add(INPUT, Ordering::SeqCst);
    connection
        .raw
        .send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    let tokens = body["tokens"].as_u64().expect("tokens");
    for _ in 0..tokens {
        let mut byte = [0];
        tokio::select! {
            permit = pace.acquire() => permit.expect("it stays open").forget(),
            _ = connection.raw.stream.read(&mut byte) => return false,
        }
        sent.fetch_add(1, Ordering::SeqCst);
        connection.raw.send(chunk(&event(&json!({ "content": "a" }), &Value::Null))).await;
    }
    let usage = json!({ "prompt_tokens": INPUT, "completion_tokens": tokens, "total_tokens": INPUT + tokens });
    let usage = format!("data: {}\n\n", json!({ "choices": [], "usage": usage }));
    connection.raw.send(chunk(&(event(&json!({}), &json!("stop")) + &usage + "data: [DONE]\n\n")) + "0\r\n\r\n").await;
    true
}

fn event(delta: &Value, finish: &Value) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    format!(
        "data: {}\n\n",
        json!({ "id": "c-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice] })
    )
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn gateway(origin: SocketAddr, store: &str, rate: u64, api: &str, more: &str) -> TestGateway {
    TestGateway::start(&format!(
        "store: {store}
upstreams: {{ llm: {{ targets: ['http://{origin}'] }} }}
routes:
  - name: chat
    match: {{ path: /chat }}
    upstream: llm
    limits:
      - name: tokens
        mode: PER_CLIENT
        client: ip
        rate: {rate}
        interval: 1d
        permits: {{ usage: {api}, max_input: {INPUT}, reserve: {{ output: 50, slice: 16, whole: [\"o1*\"] }} }}
        {more}"
    ))
}

/// Asks for a stream. Calls `received` with the number of tokens of each piece. Returns the whole stream.
async fn ask(gateway: &TestGateway, body: &Value, received: impl Fn(usize)) -> (u16, String) {
    let mut client = gateway.client().await;
    client.send(request("", &body.to_string())).await;
    let head = client.head().await.expect("a head");
    if head.field("transfer-encoding").is_none() {
        return (head.status(), String::new());
    }
    let mut text = String::new();
    loop {
        let Ok(piece) = client.chunk().await else { return (head.status(), text + "(broken off)") };
        if piece.is_empty() {
            return (head.status(), text);
        }
        let piece = String::from_utf8(piece).expect("text");
        received(piece.matches("\"content\":\"a\"").count());
        text += &piece;
    }
}

/// Parses a stream: the data of each event.
fn parse(text: &str) -> Vec<Value> {
    assert!(text.ends_with("\n\n"), "{text}");
    let data = |event: &str| event.lines().find_map(|line| Some(line.strip_prefix("data: ")?.to_owned()));
    let value = |data: String| serde_json::from_str(&data).unwrap_or_else(|_| Value::from(data));
    text.split("\n\n").filter_map(data).map(value).collect()
}

/// Returns why the output of a whole stream has ended.
fn finish_reason(text: &str) -> String {
    let events = parse(text);
    assert_eq!(events.last().expect("an event"), "[DONE]", "{text}");
    let reasons: Vec<_> = events.iter().filter_map(|event| event["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(reasons.len(), 1, "{text}");
    reasons[0].to_owned()
}

/// The law of budgets holds for streams with large bounds, which can use most of the budget.
#[tokio::test]
async fn concurrent_streams_use_most_of_their_budget() {
    const STREAMS: usize = 200;
    let redis = RedisServer::start();
    for store in ["memory".to_owned()].into_iter().chain(redis.as_ref().map(patient)) {
        let model = PacedModel::start(STREAMS).await;
        let gateway = gateway(model.origin.address, &store, 10_000, "openai", "");
        let stream = async |id: usize| {
            let tokens = 20 + id % 60;
            let body =
                json!({ "messages": [], "model": "m", "id": id, "tokens": tokens, "max_tokens": 500, "stream": true });
            let (status, text) = ask(&gateway, &body, |tokens| model.paces[id].add_permits(tokens)).await;
            assert_eq!(status, 200);
            finish_reason(&text)
        };
        let reasons = join_all((0..STREAMS).map(stream)).await;
        let sent = model.sent.load(Ordering::SeqCst);
        assert!((8_000..=10_000).contains(&sent), "{store}: {sent} tokens");
        let ended = reasons.iter().filter(|reason| *reason == "length").count();
        assert!((1..STREAMS).contains(&ended), "{store}: {ended} streams were ended");
        let counter = "tidegate_budget_streams_ended_total{route=\"chat\",limit=\"tokens\"} ";
        assert_eq!(gateway.counter(counter).await, ended as u64);
        // No reservation stays open.
        eventually(async || figures(&gateway).await[2] == 0).await;
        let used = figures(&gateway).await[1];
        assert!((sent..=10_000).contains(&used), "{store}: {used} permits for {sent} tokens");
        assert_eq!(gateway.counter("tidegate_budget_debt_total{route=\"chat\",limit=\"tokens\"} ").await, 0);
    }
}

#[tokio::test]
async fn stream_within_its_budget_is_not_changed() {
    let model = PacedModel::start(1).await;
    let gateway = gateway(model.origin.address, "memory", 1_000, "openai", "");
    let body = json!({ "messages": [], "model": "m", "id": 0, "tokens": 300, "max_tokens": 5_000, "stream": true,
        "stream_options": { "include_usage": true } });
    let (_, text) = ask(&gateway, &body, |tokens| model.paces[0].add_permits(tokens)).await;
    assert_eq!((finish_reason(&text).as_str(), parse(&text).len()), ("stop", 300 + 3));
    until_remaining(&gateway, 1_000 - INPUT - 300).await;
}

/// A whole stream of an API: one event with a name and a delta for each token, but no end.
fn endless(api: &str) -> String {
    let named = |name: &str, data: Value| format!("event: {name}\ndata: {data}\n\n");
    let delta = "0123456789";
    match api {
        "openai" => event(&json!({ "content": delta }), &Value::Null).repeat(60),
        "anthropic" => {
            let start =
                json!({ "type": "message_start", "message": { "usage": { "input_tokens": 3, "output_tokens": 1 } } });
            let block =
                json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } });
            let text = json!({ "type": "content_block_delta", "index": 0, "delta": { "text": delta } });
            named("message_start", start)
                + &named("content_block_start", block)
                + &named("content_block_delta", text).repeat(60)
        }
        _ => {
            let created =
                json!({ "type": "response.created", "sequence_number": 0, "response": { "id": "r", "model": "m" } });
            let text = json!({ "type": "response.output_text.delta", "sequence_number": 1, "delta": delta });
            named("response.created", created) + &named("response.output_text.delta", text).repeat(60)
        }
    }
}

/// Starts an origin that sends this stream in pieces of this size, and holds the connection until its peer closes it.
async fn holding_origin(stream: String, size: usize, closed: Arc<AtomicU64>) -> Origin {
    Origin::start(move |mut connection: OriginConnection| {
        let (stream, closed) = (stream.clone(), Arc::clone(&closed));
        async move {
            connection.request().await.expect("a request");
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            connection.raw.send(head).await;
            let (mut reader, mut writer) = connection.raw.stream.into_split();
            let write = async {
                for piece in stream.as_bytes().chunks(size) {
                    let piece = chunk(std::str::from_utf8(piece).expect("ASCII"));
                    // The gateway may close the connection.
                    if tokio::io::AsyncWriteExt::write_all(&mut writer, piece.as_bytes()).await.is_err() {
                        return;
                    }
                }
            };
            let mut rest = Vec::new();
            let (_, _) = tokio::join!(write, reader.read_to_end(&mut rest));
            closed.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await
}

#[tokio::test]
async fn refused_slice_ends_the_stream_of_each_api() {
    for (api, size) in [("openai", 1), ("openai", 10_000), ("anthropic", 7), ("openai_responses", 7)] {
        let closed = Arc::<AtomicU64>::default();
        let origin = holding_origin(endless(api), size, Arc::clone(&closed)).await;
        let gateway = gateway(origin.address, "memory", 300, api, "");
        let body = json!({ "messages": [], "input": "a", "model": "m", "max_tokens": 900, "max_output_tokens": 900, "stream": true });
        let (status, text) = ask(&gateway, &body, |_| {}).await;
        assert_eq!(status, 200, "{api}");
        let events = parse(&text);
        let last = &events[events.len() - 1];
        let deltas = text.matches("0123456789").count();
        assert!((20..30).contains(&deltas), "{api}: {deltas}");
        match api {
            "openai" => assert_eq!(finish_reason(&text), "length"),
            "anthropic" => {
                let ends: Vec<_> = events[events.len() - 3..].iter().map(|event| &event["type"]).collect();
                assert_eq!(ends, ["content_block_stop", "message_delta", "message_stop"]);
                assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], "max_tokens");
            }
            _ => {
                assert_eq!((&last["type"], &last["sequence_number"]), (&"response.incomplete".into(), &2.into()));
                assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
            }
        }
        eventually(async || closed.load(Ordering::SeqCst) == 1).await;
        eventually(async || remaining(&gateway).await < 30).await;
    }
}

#[tokio::test]
async fn hidden_output_is_reserved_as_a_whole() {
    let model = PacedModel::start(1).await;
    let gateway = gateway(model.origin.address, "memory", 300, "openai", "");
    for (name, more) in [("o1-mini", json!(null)), ("m", json!("low"))] {
        let body =
            json!({ "messages": [], "model": name, "reasoning_effort": more, "max_tokens": 900, "stream": true });
        assert_eq!(ask(&gateway, &body, |_| {}).await.0, 429, "{body}");
    }
    assert_eq!(model.sent.load(Ordering::SeqCst), 0);
}

/// The gateway cannot end a response without events.
#[tokio::test]
async fn response_without_events_needs_its_whole_bound() {
    let body = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n41\r\n\
        {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":70}}\r\n0\r\n\r\n";
    let origin = Origin::with_response(body).await;
    for (bound, expected) in [(100, true), (400, false)] {
        let gateway = gateway(origin.address, "memory", 300, "openai", "");
        let body = json!({ "messages": [], "model": "m", "max_tokens": bound, "stream": true });
        let (_, text) = ask(&gateway, &body, |_| {}).await;
        assert_eq!(text.ends_with('}'), expected, "{text}");
        until_remaining(&gateway, 300 - if expected { 79 } else { INPUT + 16 }).await;
    }
}

/// The stream begins with Redis, and continues without it.
#[tokio::test]
async fn failure_of_redis_follows_the_rule_of_the_limit() {
    for (rule, expected) in [("deny", "length"), ("allow", "stop"), ("local", "stop")] {
        let Some(redis) = RedisServer::start() else { return };
        let model = PacedModel::start(1).await;
        let more = format!("on_store_failure: {rule}");
        let store = format!("{{ url: '{}', timeout: 1s }}", redis.url());
        let gateway = gateway(model.origin.address, &store, 1_000, "openai", &more);
        gateway.until_config_has(&[r#""state":"up""#]).await;
        let redis = parking_lot::Mutex::new(Some(redis));
        let body = json!({ "messages": [], "model": "m", "id": 0, "tokens": 200, "max_tokens": 900, "stream": true });
        let (status, text) = ask(&gateway, &body, |tokens| {
            drop(redis.lock().take());
            model.paces[0].add_permits(tokens);
        })
        .await;
        assert_eq!((status, finish_reason(&text).as_str()), (200, expected), "{rule}");
    }
}

#[tokio::test]
async fn client_that_leaves_a_sliced_stream_stays_within_the_budget() {
    let model = PacedModel::start(1).await;
    let gateway = gateway(model.origin.address, "memory", 100, "openai", "");
    let body = json!({ "messages": [], "model": "m", "id": 0, "tokens": 500, "max_tokens": 900, "stream": true });
    let mut client = gateway.client().await;
    client.send(request("", &body.to_string())).await;
    client.head().await.expect("a head");
    drop(client);
    // The gateway reads on, and ends the stream when the budget is used up.
    model.paces[0].add_permits(500);
    eventually(async || remaining(&gateway).await < INPUT + 16).await;
    assert_eq!(gateway.counter("tidegate_budget_debt_total{route=\"chat\",limit=\"tokens\"} ").await, 0);
}
