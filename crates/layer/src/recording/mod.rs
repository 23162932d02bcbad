//! Records the requests of a live gateway, for `tidegate replay` and `tidegate suggest`.
//!
//! A recording has what the rules read: equal values are equal in the recording, but only hashes. So are the values of
//! verified credentials; the credentials themselves are not recorded. The key of the hashes is random and forgotten with the
//! recording. A slow reader loses lines, which are counted; it delays no request.

mod address;
mod held;
mod identity;
mod inputs;
mod key;
mod line;
mod mark;
mod mask;
mod reader;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};

pub use self::held::Held;
pub use self::identity::RecordedIdentity;
pub use self::inputs::Inputs;
use self::key::Key;
pub use self::mark::Mark;
pub use self::reader::RecordingReader;
use tidegate_limit::Mode;
use tidegate_limit::random::random;
use tidegate_rules::charge::ClientId;
use tidegate_rules::client::{AddressRules, ClientSource};
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::identity::Identity;
use tidegate_rules::route::Route;

/// The most recordings at a time.
pub const MAX_RECORDINGS: usize = 4;

/// The most bytes of lines that wait for the reader of a recording.
const MAX_QUEUED: usize = 4 << 20;

/// The most bytes of a line. Longer lines are dropped.
const MAX_LINE: usize = 32 << 10;

/// The recordings of a gateway.
#[derive(Debug)]
pub struct Recorder {
    /// Whether there is a recording, so that other requests need not read the list.
    is_active: AtomicBool,
    recordings: ArcSwap<Vec<Arc<Recording>>>,
    /// Held while the list changes.
    changing: Mutex<()>,
    /// Becomes `true` when all recordings end.
    closed: watch::Sender<bool>,
}

/// The requests to record.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The share of the clients.
    pub sample: f64,
    /// More sources of clients than the rules have. The first that needs no credentials decides about the sample.
    pub clients: Vec<ClientSource>,
}

impl Selection {
    /// Returns the source of clients that decides about the sample. `None` if the route of each request decides.
    pub fn sampled_by(&self) -> Option<&ClientSource> {
        self.clients.iter().find(|client| is_recorded(client))
    }
}

/// Why a recording cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    #[error("there are {MAX_RECORDINGS} recordings already: end one, by its id in the audit list")]
    TooMany,
    #[error("the gateway ends")]
    Closed,
    #[error("the system has no random bytes for the key of the hashes")]
    NoKey,
}

/// A recording.
#[derive(Debug)]
pub struct Recording {
    id: String,
    key: Key,
    selection: Selection,
    lines: UnboundedSender<String>,
    backlog: Arc<Backlog>,
    /// The inputs of the rules, and these with the further sources of the selection.
    inputs: ArcSwapOption<(Arc<Inputs>, Inputs)>,
}

/// The lines that the reader has not taken.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    dropped: AtomicU64,
    /// The requests whose lines have not been sent.
    in_flight: AtomicU64,
    /// Notified when an operator ends the recording.
    ended: Notify,
}

/// The line of a request in flight. It counts as in flight until it is dropped.
#[derive(Debug)]
pub struct PendingLine {
    recording: Arc<Recording>,
    /// A JSON object without time, status and credentials.
    members: String,
    /// The verified credentials as a member of the object. Empty if the limits did not need them.
    identity: String,
}

impl Default for Recorder {
    fn default() -> Self {
        let (is_active, recordings) = (AtomicBool::new(false), ArcSwap::default());
        Self { is_active, recordings, changing: Mutex::default(), closed: watch::Sender::new(false) }
    }
}

impl Recorder {
    /// Returns `true` if requests are recorded.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Starts a recording, which ends when its reader is dropped.
    ///
    /// # Errors
    /// There are too many recordings, or the recorder is closed.
    pub fn start(self: &Arc<Self>, selection: Selection) -> Result<RecordingReader, RecordingError> {
        let (lines, queue) = unbounded_channel();
        let (key, backlog) = (Key::new().ok_or(RecordingError::NoKey)?, Arc::default());
        let id = format!("{:016x}", u64::from_le_bytes(random()));
        let recording = Arc::new(Recording {
            id: id.clone(),
            key,
            selection,
            lines,
            backlog: Arc::clone(&backlog),
            inputs: ArcSwapOption::empty(),
        });
        let _changing = self.changing.lock();
        if *self.closed.borrow() {
            return Err(RecordingError::Closed);
        }
        let recordings = self.recordings.load();
        if recordings.len() >= MAX_RECORDINGS {
            return Err(RecordingError::TooMany);
        }
        let with_new = recordings.iter().chain([&recording]).cloned().collect();
        self.recordings.store(Arc::new(with_new));
        self.is_active.store(true, Ordering::Relaxed);
        let (recorder, recording) = (Arc::clone(self), Arc::downgrade(&recording));
        Ok(RecordingReader { id, recorder, recording, queue, backlog, closed: self.closed.subscribe() })
    }

    /// Ends the recording with this id: its reader gets the lines that wait. Returns `false` if the id is unknown.
    pub fn end(&self, id: &str) -> bool {
        let recordings = self.recordings.load();
        let Some(recording) = recordings.iter().find(|recording| recording.id == id) else { return false };
        self.remove(&Arc::downgrade(recording));
        recording.backlog.ended.notify_one();
        true
    }

    /// Ends all recordings, and starts no more.
    pub fn close(&self) {
        let _changing = self.changing.lock();
        // First, so that readers know why their recordings end.
        self.closed.send_replace(true);
        self.replace(Vec::new());
    }

    /// Waits until the recorder is closed, and all readers have the last line or are gone.
    pub async fn ended(&self) {
        self.closed.closed().await;
    }

    /// Ends a recording.
    fn remove(&self, ended: &Weak<Recording>) {
        let _changing = self.changing.lock();
        let recordings = self.recordings.load();
        let others = recordings.iter().filter(|recording| !std::ptr::eq(Arc::as_ptr(recording), ended.as_ptr()));
        self.replace(others.cloned().collect());
    }

    fn replace(&self, recordings: Vec<Arc<Recording>>) {
        self.is_active.store(!recordings.is_empty(), Ordering::Relaxed);
        self.recordings.store(Arc::new(recordings));
    }

    /// Returns the lines of a request for all recordings whose sample includes its client. `route` is `None` if no route
    /// matches.
    #[cold]
    pub fn lines(&self, inputs: &Arc<Inputs>, route: Option<&Route>, facts: &Facts<'_>) -> Vec<PendingLine> {
        let recordings = self.recordings.load();
        let included = recordings.iter().filter(|recording| recording.includes(&inputs.addresses, route, facts));
        let pending = |recording: &Arc<Recording>| {
            let is_full = recording.backlog.bytes.load(Ordering::Relaxed) >= MAX_QUEUED;
            let members = if is_full { None } else { recording.members(inputs, route, facts) };
            if members.is_none() {
                recording.backlog.dropped.fetch_add(1, Ordering::Relaxed);
            }
            let members = members?;
            recording.backlog.in_flight.fetch_add(1, Ordering::Relaxed);
            Some(PendingLine { recording: Arc::clone(recording), members, identity: String::new() })
        };
        included.filter_map(pending).collect()
    }
}

impl Recording {
    /// Returns `true` if the sample includes the client of a request.
    fn includes(&self, addresses: &AddressRules, route: Option<&Route>, facts: &Facts<'_>) -> bool {
        if self.selection.sample >= 1.0 {
            return true;
        }
        let source = self.selection.sampled_by().unwrap_or_else(|| sampled_by(route));
        let by_address = |_| ClientSource::Ip.identify(facts, addresses);
        let rank = match source.identify(facts, addresses).or_else(by_address) {
            Ok(ClientId::Value(value)) => self.key.rank(&value),
            Ok(client) => self.key.rank(format!("{client:?}").as_bytes()),
            // Requests without any client are one client.
            Err(_) => self.key.rank(b""),
        };
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = rank as f64 / u64::MAX as f64;
        share < self.selection.sample
    }

    fn members(&self, inputs: &Arc<Inputs>, route: Option<&Route>, facts: &Facts<'_>) -> Option<String> {
        let (client, route) = (inputs.addresses.address(facts), route.map(|route| &*route.name));
        self.with_inputs(inputs, |inputs| inputs.line(facts, client, route, &self.key))
    }

    /// Calls `read` with the inputs of the rules and the further sources of the selection.
    fn with_inputs<T>(&self, inputs: &Arc<Inputs>, read: impl FnOnce(&Inputs) -> T) -> T {
        if self.selection.clients.is_empty() {
            return read(inputs);
        }
        // A reload replaces the inputs of the rules.
        let current = self.inputs.load_full().filter(|current| Arc::ptr_eq(&current.0, inputs));
        let extended = current.unwrap_or_else(|| {
            let extended = Arc::new((Arc::clone(inputs), inputs.with_clients(&self.selection.clients)));
            self.inputs.store(Some(Arc::clone(&extended)));
            extended
        });
        read(&extended.1)
    }

    /// Sends a line, or counts it if the reader is too slow.
    fn send(&self, line: String) {
        let length = line.len();
        let before = self.backlog.bytes.fetch_add(length, Ordering::Relaxed);
        if length > MAX_LINE || before + length > MAX_QUEUED {
            self.backlog.bytes.fetch_sub(length, Ordering::Relaxed);
            self.backlog.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // An error means that the recording has ended.
        _ = self.lines.send(line);
    }
}

impl PendingLine {
    /// Adds the verified credentials of the request. Returns `false`, and counts the line as dropped, if no other values can
    /// replace theirs.
    #[cold]
    pub(crate) fn identify(&mut self, inputs: &Arc<Inputs>, identity: &Identity) -> bool {
        let recording = &self.recording;
        let masked = recording.with_inputs(inputs, |inputs| inputs.identity.mask(identity, &recording.key));
        match masked.and_then(|masked| serde_json::to_string(&masked).ok()) {
            Some(masked) => self.identity = format!(",\"identity\":{masked}"),
            None => _ = recording.backlog.dropped.fetch_add(1, Ordering::Relaxed),
        }
        !self.identity.is_empty()
    }

    /// Sends the line of a request that has ended. `time` is in milliseconds since the Unix epoch, and `limits` is the
    /// decision of the limits.
    pub fn send(self, time: u64, limits: &str, status: Option<u16>) {
        let status = status.map(|status| format!("\"status\":{status},")).unwrap_or_default();
        let members = self.members.strip_prefix('{').and_then(|members| members.strip_suffix('}')).unwrap_or_default();
        let identity = &self.identity;
        self.recording.send(format!("{{\"time\":{time},\"limits\":\"{limits}\",{status}{members}{identity}}}\n"));
    }
}

impl Drop for PendingLine {
    fn drop(&mut self) {
        // After the line has been sent, if it is.
        self.recording.backlog.in_flight.fetch_sub(1, Ordering::Release);
    }
}

/// Returns the source of clients that decides whether a sample includes requests of this route: of the first limit that
/// identifies clients by more than the address, or else the address.
pub fn sampled_by(route: Option<&Route>) -> &ClientSource {
    let limits = route.map(|route| &route.limits[..]).unwrap_or_default();
    let clients = limits.iter().filter(|limit| limit.mode() == Mode::PerClient).map(|limit| &limit.client);
    let mut recorded = clients.filter(|client| client.sources().iter().all(|source| is_recorded(source)));
    recorded.find(|client| **client != ClientSource::Ip).unwrap_or(&ClientSource::Ip)
}

/// Returns `true` if a recording has the values of this source when the request arrives, before its credentials are verified.
fn is_recorded(source: &ClientSource) -> bool {
    use ClientSource::{Extension, Function, Identity, Tls};
    !matches!(source, Tls(_) | Extension | Function(_) | Identity(_))
}
