//! Requests whose cost is known only after the response: their reservations, from the decision to the settlement.

mod extension;
mod peek;
mod reservations;
mod response_reader;
mod top_up;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::peek::{PeekBody, PeekError, PeekFunction, PeekFuture};
use self::reservations::OpenReservation;
pub use self::response_reader::ResponseReader;
pub use self::top_up::{Advance, TopUp};
use tidegate_metrics::LimitMetrics;
use tidegate_rules::charge::ChargeKind;
use tidegate_rules::limits::budget::{OnDisconnect, UsageCost};
use tidegate_rules::limits::usage_source::UsageSource;
use tidegate_rules::rules::{Charges, LimitCharge};
use tidegate_store::Store;
use tidegate_usage::{Request, Usage};

/// A request to a language model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeteredRequest<'r> {
    /// The gateway has requested the usage at the end of the stream, and the client has not.
    pub(crate) removes_usage: bool,
    pub(crate) model: Option<&'r str>,
    /// The request, if its output can be reserved in slices.
    pub(crate) stream: Option<&'r Request>,
}

/// The open reservations of a request. If it is dropped before an upstream can have received the request, nothing is charged;
/// otherwise, all that is reserved is charged.
#[derive(Debug)]
pub struct Metering {
    source: UsageSource,
    /// The gateway has requested the usage at the end of the stream, and the client has not.
    removes_usage: bool,
    on_disconnect: OnDisconnect,
    is_sent: AtomicBool,
    sent_at: OnceLock<Instant>,
    /// The store, if the output is reserved in slices.
    store: Option<Store>,
    /// `None` after the settlement.
    open: Mutex<Option<Vec<OpenReservation>>>,
}

impl Metering {
    /// Keeps the reservations that an admitted request has made. Returns `None` if it has none, and the client may receive the
    /// whole response. `metrics` returns the counters of the limit at a position.
    pub(crate) fn new(
        charges: &Charges<'_>,
        store: &Store,
        request: &MeteredRequest<'_>,
        metrics: impl Fn(usize) -> Option<LimitMetrics>,
    ) -> Option<Self> {
        let mut first: Option<&UsageCost> = None;
        let mut open = Vec::new();
        let is_reserved = |entry: &LimitCharge<'_>| matches!(entry.charge.kind, ChargeKind::Reserve(_));
        for entry in charges.iter().filter(is_reserved) {
            let Some(cost) = entry.limit.permits.usage() else { continue };
            first = first.or(Some(cost));
            let decision = entry.decision.filter(|decision| decision.granted && !decision.is_unknown);
            let Some(decision) = decision else { continue };
            let metrics = metrics(entry.index);
            let reservation = match charges.is_local() {
                false => store.keep(entry.charge, metrics),
                true => match decision.grant(entry.charge, charges.decided_at().unwrap_or_default()) {
                    Some(granted) => store.keep_locally(granted, metrics),
                    None => continue,
                },
            };
            open.push(OpenReservation::new(reservation, cost, &entry, request));
        }
        let UsageCost { source, on_disconnect, .. } = first.filter(|_| !open.is_empty() || request.removes_usage)?;
        let store = open.iter().any(|open| open.slices.is_some()).then(|| store.clone());
        Some(Self {
            source: source.clone(),
            removes_usage: request.removes_usage,
            on_disconnect: *on_disconnect,
            is_sent: AtomicBool::new(false),
            sent_at: OnceLock::new(),
            store,
            open: Mutex::new(Some(open)),
        })
    }

    /// Records that the request is going to be sent: an upstream may receive it.
    pub fn record_sent(&self) {
        self.is_sent.store(true, Ordering::Relaxed);
        self.sent_at.get_or_init(Instant::now);
    }

    /// Records that no upstream has received the request.
    pub fn record_not_sent(&self) {
        self.is_sent.store(false, Ordering::Relaxed);
    }

    /// Returns a reader of the response, which has these header fields.
    pub fn reader(&self, headers: &HeaderMap) -> ResponseReader {
        ResponseReader::new(&self.source, headers, *self.sent_at.get_or_init(Instant::now))
    }

    /// Returns `true` if the cost is in the body of the response, which must not be compressed.
    pub fn reads_body(&self) -> bool {
        self.source.reads_body()
    }

    /// Returns `true` if the client must not receive the event with the usage.
    pub fn removes_usage(&self) -> bool {
        self.removes_usage
    }

    /// Returns `true` if the output is reserved in slices.
    pub fn has_slices(&self) -> bool {
        self.store.is_some()
    }

    /// Returns the action if the client leaves.
    pub fn on_disconnect(&self) -> OnDisconnect {
        self.on_disconnect
    }

    /// Charges the usage. Without one, charges all that is reserved: an absent usage is not zero.
    pub fn settle(&self, usage: Option<&Usage>) {
        for OpenReservation { reservation, weights, .. } in self.open.lock().take().into_iter().flatten() {
            if let Some(usage) = usage {
                reservation.settle(u32::try_from(weights.cost(usage)).unwrap_or(u32::MAX));
            }
        }
    }

    /// Charges this output of a stream that the gateway ends, and its input, if it is known. Returns the usage.
    fn settle_ended(&self, input: Option<Usage>, output: u64) -> Usage {
        let open = self.open.lock().take().unwrap_or_default();
        let bound = open.iter().find_map(|open| Some(open.slices.as_ref()?.input)).unwrap_or(0);
        open.into_iter().for_each(|open| open.settle_ended(input.as_ref(), output));
        Usage { output, ..input.unwrap_or(Usage { input: bound, ..Usage::default() }) }
    }

    /// Ends the reservations, and charges nothing.
    pub fn cancel(&self) {
        self.settle(Some(&Usage::default()));
    }
}

impl Drop for Metering {
    fn drop(&mut self) {
        if !*self.is_sent.get_mut() {
            self.cancel();
        }
    }
}
