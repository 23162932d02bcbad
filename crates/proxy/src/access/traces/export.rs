//! The thread that sends spans to the collector.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::thread::Builder;
use std::time::Duration;

use opentelemetry_otlp::{RetryPolicy, SpanExporter as OtlpExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::super::TRACES_TARGET;
use super::http_client::CollectorClient;
use super::settings::Settings;
use crate::upstream::HostLookup;
use tidegate_metrics::{Metrics, SpanOutcome};

/// Maximum number of requests whose spans wait for the collector.
const QUEUE: usize = 1024;

/// Maximum number of requests whose spans are sent together.
const BATCH: usize = 256;

/// The time during which spans are collected before they are sent.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum duration of a call to the collector.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum duration of the last calls when the gateway ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The spans of one request.
pub(super) type RequestSpans = Vec<SpanData>;

/// The spans that wait for the collector.
#[derive(Debug)]
pub(super) struct SpanQueue {
    spans: mpsc::Sender<RequestSpans>,
    metrics: Arc<Metrics>,
}

/// Ends the thread.
#[derive(Debug)]
pub(super) struct Exporter(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    /// Disconnected when the thread has ended.
    ended: std_mpsc::Receiver<()>,
}

/// The parts of the thread.
struct Export {
    exporter: OtlpExporter,
    metrics: Arc<Metrics>,
    /// Whether the last call failed. Only the first failure in a row is logged.
    is_failing: bool,
}

/// Starts the thread, which looks the collector up with `hosts`.
///
/// # Errors
/// The exporter cannot use the environment, or the system cannot start a thread.
pub(super) fn start(
    settings: &Settings,
    metrics: &Arc<Metrics>,
    hosts: &HostLookup,
) -> io::Result<(SpanQueue, Exporter)> {
    let exporter = OtlpExporter::builder().with_http().with_http_client(CollectorClient(hosts.clone()));
    // A retry would keep the queue waiting: the next call has later spans.
    let mut exporter = exporter.with_retry_policy(RetryPolicy::disabled()).build().map_err(io::Error::other)?;
    let resource = Resource::builder();
    let resource = if settings.has_service_name { resource } else { resource.with_service_name("tidegate") };
    exporter.set_resource(&resource.build());
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (sender, spans) = mpsc::channel(QUEUE);
    let (stop, stopped) = oneshot::channel();
    let (ending, ended) = std_mpsc::channel();
    let export = Export { exporter, metrics: Arc::clone(metrics), is_failing: false };
    Builder::new().name("traces".to_owned()).spawn(move || {
        runtime.block_on(export.run(spans, stopped));
        drop(ending);
    })?;
    let queue = SpanQueue { spans: sender, metrics: Arc::clone(metrics) };
    Ok((queue, Exporter(Mutex::new(Some(Running { stop, ended })))))
}

// === impl SpanQueue ===

impl SpanQueue {
    /// Adds the spans of a request, or drops them if the queue is full.
    pub(super) fn push(&self, spans: RequestSpans) {
        let count = spans.len();
        if self.spans.try_send(spans).is_err() {
            self.metrics.count_spans(SpanOutcome::Dropped, count);
        }
    }
}

// === impl Exporter ===

impl Exporter {
    /// Sends the spans in the queue, and ends the thread. Returns after at most [`FLUSH_TIMEOUT`].
    pub(super) fn flush(&self) {
        let Some(Running { stop, ended }) = self.0.lock().take() else { return };
        _ = stop.send(());
        if ended.recv_timeout(FLUSH_TIMEOUT) == Err(std_mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!(target: TRACES_TARGET, "collector did not respond in time, its last spans are lost");
        }
    }
}

// === impl Export ===

impl Export {
    async fn run(mut self, mut spans: mpsc::Receiver<RequestSpans>, stopped: oneshot::Receiver<()>) {
        let mut stopped = pin!(stopped);
        loop {
            let batch = next_batch(&mut spans, stopped.as_mut()).await;
            if batch.is_empty() {
                return;
            }
            self.send(batch).await;
        }
    }

    async fn send(&mut self, batch: Vec<RequestSpans>) {
        let batch: Vec<SpanData> = batch.into_iter().flatten().collect();
        let count = batch.len();
        let result = timeout(CALL_TIMEOUT, self.exporter.export(batch)).await;
        let error = match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("timeout".to_owned()),
        };
        self.metrics.count_spans(if error.is_none() { SpanOutcome::Exported } else { SpanOutcome::Failed }, count);
        match (&error, self.is_failing) {
            (Some(error), false) => {
                tracing::warn!(target: TRACES_TARGET, error, "collector cannot be used, its spans are lost");
            }
            (None, true) => tracing::info!(target: TRACES_TARGET, "collector accepts spans again"),
            _ => {}
        }
        self.is_failing = error.is_some();
    }
}

/// Returns the spans that arrive within [`INTERVAL`] of the first ones, or all that are left if the thread must end.
/// An empty batch is the last one.
async fn next_batch(
    spans: &mut mpsc::Receiver<RequestSpans>,
    mut stopped: Pin<&mut oneshot::Receiver<()>>,
) -> Vec<RequestSpans> {
    let mut batch = Vec::new();
    let mut interval = pin!(sleep(INTERVAL));
    while batch.len() < BATCH {
        let is_closed = spans.is_closed();
        let limit = BATCH - batch.len();
        tokio::select! {
            biased;
            _ = stopped.as_mut(), if !is_closed => spans.close(),
            count = spans.recv_many(&mut batch, limit) => match count {
                0 => break,
                _ if batch.len() == count => interval.as_mut().reset(Instant::now() + INTERVAL),
                _ => {}
            },
            () = interval.as_mut(), if !batch.is_empty() => break,
        }
    }
    batch
}
