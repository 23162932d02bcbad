//! `GET /api/v1/record`: streams the requests of this gateway as lines for `tidegate replay`, with hashes instead of the
//! values that clients send.

#![expect(unused_qualifications, reason = "utoipa generates them")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use utoipa::IntoParams;

use super::Admin;
use super::audit::Change;
use super::phase::EventStream;
use super::problem::Problem;
use super::query::Parameters;
use tidegate_config::Millis;
use tidegate_layer::recording::{Inputs, Mark, RecordingReader, Selection};
use tidegate_rules::client::ClientSource;
use tidegate_rules::request::identity::IdentityValue;

/// How long a recording lasts by default, and at most.
const DEFAULT_DURATION: Millis = Millis(10 * 60 * 1000);
const MAX_DURATION: Millis = Millis(24 * 60 * 60 * 1000);

/// The longest pause between two lines, so that a connection without requests stays open.
const PAUSE: Duration = Duration::from_secs(5);

/// The most further sources of clients.
const MAX_CLIENTS: usize = 8;

/// The parameters, for the OpenAPI document. [`Parameters`] reads them.
#[expect(dead_code, reason = "only describes the parameters")]
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct RecordQuery {
    /// The share of the clients, above 0 and at most 1 (default).
    #[param(minimum = 0, maximum = 1)]
    sample: Option<f64>,
    /// How long, such as `10m` (default); at most `1d`.
    r#for: Option<String>,
    /// A value that the rules do not read, such as `header:X-Org` or `jwt:sub`; may be repeated. The first one that is not of
    /// credentials decides about the sample.
    #[param(pattern = "^(header|cookie|query|jwt|key|basic):.+$")]
    client: Option<String>,
}

/// A recording, as its stream writes it.
struct Recording {
    reader: RecordingReader,
    admin: Admin,
    /// The fields of the request, with the token.
    headers: HeaderMap,
    clients: Vec<ClientSource>,
    mark: Mark,
    /// The inputs of the rules in the last mark with values.
    inputs: Option<Arc<Inputs>>,
    ends_at: Instant,
    next_mark: Instant,
    has_ended: bool,
}

/// Streams the requests as JSON lines for `tidegate replay`, with hashes instead of the values that clients send.
///
/// Methods, paths, hosts and costs are readable, and constants of conditions, also API keys in the rule file: the first
/// line lists them. Constants from files and of `Authorization` and `Cookie` are not readable. Addresses inside networks
/// of the rules keep the bits of the network. Verified credentials are the hashes of the values that rules read, and of the id
/// and the tier of the API key; tiers and rates of the rules are readable. At most 4 recordings, then 503.
#[utoipa::path(
    get,
    path = "/record",
    tag = "limits",
    params(RecordQuery),
    responses(
        (status = 200, description = "A line of JSON for each request", body = String, content_type = "application/x-ndjson"),
        Problem
    ),
    security(("token" = []))
)]
pub(super) async fn record(
    State(admin): State<Admin>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let operator = admin.active.load_full().authorizer.authorize(&headers).await?;
    let query = Parameters::parse(query.as_deref(), &["sample", "for", "client"])?;
    let sample = query.one("sample")?.map_or(Some(1.0), |text| text.parse().ok());
    let sample = sample.filter(|sample| 0.0 < *sample && *sample <= 1.0);
    let sample = sample.ok_or_else(|| Problem::bad_request("`sample` is a share above 0 and at most 1"))?;
    let duration = query.one("for")?.map_or(Some(DEFAULT_DURATION), |text| Millis::parse(&text));
    let duration = duration.filter(|duration| (Millis(1)..=MAX_DURATION).contains(duration));
    let duration = duration.ok_or_else(|| Problem::bad_request("`for` is a duration of at most 1d, such as 10m"))?;
    let clients = query.all("client");
    if clients.len() > MAX_CLIENTS {
        return Err(Problem::bad_request(format!("at most {MAX_CLIENTS} `client` parameters")));
    }
    let clients = clients.iter().map(|text| source(text)).collect::<Result<Vec<_>, _>>()?;
    let selection = Selection { sample, clients: clients.clone() };
    let reader = admin.layer.recorder().start(selection.clone());
    let reader = reader.map_err(|error| Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    let target = format!("{}: {sample} of the clients for {}", reader.id(), Millis::show(duration.0));
    admin.audit.record(Change { operator, action: "record", target, client: None, reason: None }, Ok(()));

    let by = selection.sampled_by().map(ToString::to_string);
    let mark = Mark { id: reader.id().to_owned(), sample, by, ..Mark::default() };
    let now = Instant::now();
    let (ends_at, next_mark) = (now + duration.duration(), now + PAUSE);
    let (inputs, has_ended) = (None, false);
    let recording = Recording { reader, admin, headers, clients, mark, inputs, ends_at, next_mark, has_ended };
    let lines = stream::unfold(recording, Recording::next);
    let body = Body::from_stream(lines.map(Ok::<_, Infallible>));
    let fields = [(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")];
    let mut response = (fields, body).into_response();
    response.extensions_mut().insert(EventStream);
    Ok(response)
}

/// Ends a recording: its stream sends the lines that wait, and the last line.
#[utoipa::path(
    delete,
    path = "/record/{id}",
    tag = "limits",
    params(("id" = String, Path, description = "The id in the first line", example = "0123456789abcdef")),
    responses((status = 200, description = "The recording that was ended", body = Object), Problem),
    security(("token" = []))
)]
pub(super) async fn end(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let operator = admin.active.load_full().authorizer.authorize(&headers).await?;
    if !admin.layer.recorder().end(&id) {
        return Err(Problem::new(StatusCode::NOT_FOUND, "there is no recording with this id"));
    }
    let target = id.clone();
    admin.audit.record(Change { operator, action: "end_recording", target, client: None, reason: None }, Ok(()));
    Ok(Json(json!({ "id": id })))
}

impl Recording {
    /// Returns the next lines. Returns `None` after the last line.
    async fn next(mut self) -> Option<(String, Self)> {
        loop {
            if self.mark.end {
                return None;
            }
            if self.has_ended {
                // Before the queue: a request that ends in between is in the queue, or still counted.
                let unfinished = self.reader.in_flight();
                let lines = match self.reader.waiting_lines() {
                    Some(lines) => self.with_new_rules(&lines),
                    None => self.last_mark(unfinished),
                };
                return Some((lines, self));
            }
            if let Some(mark) = self.mark_of_new_rules() {
                return Some((mark.to_line(), self));
            }
            let now = Instant::now();
            if now >= self.ends_at {
                self.end(false);
            } else if now >= self.next_mark && !self.is_authorized().await {
                self.end(true);
            } else if now >= self.next_mark {
                self.next_mark = now + PAUSE;
                return Some((self.mark_of_dropped(), self));
            } else {
                match timeout_at(self.next_mark.min(self.ends_at), self.reader.lines()).await {
                    Ok(Some(lines)) => return Some((self.with_new_rules(&lines), self)),
                    Ok(None) => self.end(true),
                    Err(_) => {}
                }
            }
        }
    }

    fn end(&mut self, early: bool) {
        self.reader.end();
        (self.has_ended, self.mark.early) = (true, early);
    }

    /// Returns `false` if an operator has removed the token.
    async fn is_authorized(&self) -> bool {
        self.admin.active.load_full().authorizer.authorize(&self.headers).await.is_ok()
    }

    /// Returns a mark with the recorded values, if it is the first or the rules have changed.
    fn mark_of_new_rules(&mut self) -> Option<Mark> {
        let inputs = self.admin.layer.recorded();
        if self.inputs.as_ref().is_some_and(|previous| Arc::ptr_eq(previous, &inputs)) {
            return None;
        }
        let holds = inputs.held(&self.clients);
        let lacks = inputs.with_clients(&self.clients).unheld();
        self.inputs = Some(inputs);
        Some(Mark { holds: Some(holds), lacks, ..self.mark.clone() })
    }

    /// Returns the lines, behind a mark if their rules may be new.
    fn with_new_rules(&mut self, lines: &str) -> String {
        self.mark_of_new_rules().map(|mark| mark.to_line()).unwrap_or_default() + lines
    }

    /// Returns a mark if lines were dropped. Otherwise returns an empty line, which keeps the connection open.
    fn mark_of_dropped(&mut self) -> String {
        let dropped = self.reader.dropped();
        if dropped == self.mark.dropped {
            return "\n".to_owned();
        }
        self.mark.dropped = dropped;
        self.mark.to_line()
    }

    fn last_mark(&mut self, unfinished: u64) -> String {
        // The reader needs to know the length of the last line.
        self.mark.by = None;
        (self.mark.dropped, self.mark.unfinished, self.mark.end) = (self.reader.dropped(), unfinished, true);
        self.mark.to_line()
    }
}

fn source(text: &str) -> Result<ClientSource, Problem> {
    let source = match text.split_once(':') {
        Some(("header", name)) => HeaderName::from_bytes(name.as_bytes()).ok().map(ClientSource::Header),
        Some(("jwt" | "key" | "basic", _)) => IdentityValue::parse(text).map(ClientSource::Identity),
        Some((kind, name)) if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()) => match kind {
            "cookie" => Some(ClientSource::Cookie(name.to_owned())),
            "query" => Some(ClientSource::Query(name.to_owned())),
            _ => None,
        },
        _ => None,
    };
    source.ok_or_else(|| {
        Problem::bad_request("`client` is header:NAME, cookie:NAME, query:NAME, jwt:CLAIM, key:NAME or basic:user")
    })
}
