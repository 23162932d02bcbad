//! The state of a store that a handover moves to the next gateway: the number of gateways, the buckets in use of this
//! process, the permits that are owed to Redis, the data of operators, post-paid limits, and the receipts of this process.
//!
//! The state is lines of JSON: first the header, then late charges, overrides, the audit list, post-paid limits, limits, after
//! each limit its buckets, receipts, and open reservations of budgets. A reader ignores lines that it does not know, and buckets of limits that its rules do not have. Times are relative to the
//! sender's present.

mod limiter;
mod operators;
mod receipts;
mod reservations;
#[cfg(test)]
#[cfg(feature = "redis")]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use self::limiter::{SerializedLateCharge, SerializedMode};
pub use self::operators::OperatorData;
use self::receipts::{SerializedReceipt, import_post_paid};
use super::fallback::LocalState;
use super::{Backend, Memory, Store, StoredOverride, backend};
use tidegate_limit::Quota;
use tidegate_limit::text::hex;
use tidegate_rules::charge::Limiter;
use tidegate_rules::settings::store::KeySecret;

/// The maximum size of a state in bytes. If it would be larger, buckets and late charges are left out, the least used
/// buckets first.
pub const MAX_STATE: usize = 64 << 20;
/// The maximum size of all late charges of a state in bytes.
const MAX_LATE_CHARGE_BYTES: usize = MAX_STATE / 2;
/// The version of the format. Other versions are ignored.
const VERSION: u32 = 1;
/// The maximum number of gateways in a valid state.
const MAX_GATEWAYS: u32 = 1 << 16;

/// The maximum number of slowest quotas of a limit: the quotas with the lowest rate and with the longest interval.
const MAX_SLOWEST: usize = 2;

/// The state of a store, as another gateway has sent it.
#[derive(Debug)]
pub struct StoreState {
    header: Header,
    lines: Vec<u8>,
}

/// The state that a gateway sends.
#[derive(Debug)]
pub struct SentState {
    /// The encoded state.
    pub bytes: Vec<u8>,
    late_charges: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    tidegate_state: u32,
    gateways: u32,
    predecessors: u8,
    id: String,
    secret: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    #[serde(rename = "payment")]
    LateCharge(SerializedLateCharge),
    Override(StoredOverride),
    /// An entry of the audit list.
    Audit(String),
    /// A post-paid limit, and for how long it is.
    PostPaid {
        limit: String,
        millis: u64,
    },
    Receipt(SerializedReceipt),
    /// An open reservation of a budget: its owner and its number.
    Reservation {
        limit: String,
        owner: String,
        number: u64,
        permits: u32,
    },
    /// The cost of a reservation that was handed over.
    Settlement {
        number: u64,
        cost: u32,
    },
    /// The limit of the buckets that follow.
    Limit {
        name: String,
        mode: SerializedMode,
        algorithm: String,
        /// The rates and intervals of the slowest quotas of its clients. Older gateways do not write them.
        #[serde(default)]
        slowest: Vec<(u32, u64)>,
    },
    /// An owner and the numbers of the bucket.
    Bucket(String, Vec<i64>),
}

/// The numbers of lines of a state that were used and that were ignored.
#[derive(Clone, Copy, Debug, Default)]
struct Imported {
    buckets: usize,
    late_charges: usize,
    owed: u64,
    receipts: usize,
    ignored: usize,
}

// === impl StoreState ===

impl StoreState {
    /// Reads the header of a state.
    ///
    /// # Errors
    /// The state is damaged, or of another version.
    pub fn new(lines: Vec<u8>) -> Result<Self, String> {
        let first = lines.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let header: Header = serde_json::from_slice(first).map_err(|error| error.to_string())?;
        if header.tidegate_state != VERSION {
            return Err(format!("version {} of the state, not {VERSION}", header.tidegate_state));
        }
        if !(1..=MAX_GATEWAYS).contains(&header.gateways) || header.secret().is_none() || !header.has_sound_id() {
            return Err("the header has a number, a secret or an id that no gateway writes".to_owned());
        }
        Ok(Self { header, lines })
    }

    fn lines(&self) -> impl Iterator<Item = Option<Line>> {
        let lines = self.lines.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).ok())
    }

    /// Adds each late charge, each post-paid limit, and each bucket of these limiters to the store, and each receipt if both
    /// have the same secret. Returns their counts.
    fn import(&self, store: &Store, limiters: &[Arc<Limiter>], has_secret: bool) -> Imported {
        let by_name: HashMap<&str, &Arc<Limiter>> =
            limiters.iter().map(|limiter| (limiter.name.as_str(), limiter)).collect();
        let mut imported = Imported::default();
        let mut current = None;
        for line in self.lines() {
            match line {
                Some(Line::LateCharge(late_charge)) => {
                    let owed = store.adopt(late_charge, &by_name);
                    imported.late_charges += usize::from(owed.is_some());
                    imported.owed += owed.unwrap_or_default();
                    imported.ignored += usize::from(owed.is_none());
                }
                Some(Line::Limit { name, mode, algorithm, slowest }) => {
                    let is_same = |limiter: &&&Arc<Limiter>| {
                        limiter.mode == mode.read() && limiter.quota.algorithm().name() == algorithm
                    };
                    let limiter = by_name.get(name.as_str()).filter(is_same);
                    current = limiter.map(|limiter| (*limiter, read_quotas(&slowest, limiter)));
                }
                Some(Line::Bucket(owner, numbers)) => {
                    let import = |(limiter, quotas): &(&Arc<Limiter>, Vec<Quota>)| {
                        store.import_bucket(limiter, quotas, &owner, &numbers)
                    };
                    let is_known = current.as_ref().is_some_and(import);
                    imported.buckets += usize::from(is_known);
                    imported.ignored += usize::from(!is_known);
                }
                Some(Line::PostPaid { limit, millis }) => store.import_post_paid(&limit, millis),
                Some(Line::Receipt(receipt)) => {
                    let is_known = has_secret && store.import_receipt(receipt, &by_name);
                    imported.receipts += usize::from(is_known);
                    imported.ignored += usize::from(!is_known);
                }
                Some(Line::Reservation { limit, owner, number, permits }) => {
                    let is_known = backend!(
                        store,
                        |memory| reservations::import(
                            memory,
                            &by_name,
                            (limit.as_str(), owner.as_str()),
                            number,
                            permits
                        ),
                        |_| false
                    );
                    imported.ignored += usize::from(!is_known);
                }
                Some(Line::Override(_) | Line::Audit(_)) => {} // the gateway restores them
                Some(Line::Settlement { .. }) => {}            // of the last state
                None => imported.ignored += 1,
            }
        }
        imported
    }
}

/// Returns the quotas with these rates and intervals, with the algorithm of this limiter.
fn read_quotas(quotas: &[(u32, u64)], limiter: &Limiter) -> Vec<Quota> {
    let quota = |(rate, interval): &(u32, u64)| Quota::new((*rate).into(), *interval, limiter.quota.algorithm()).ok();
    quotas.iter().take(MAX_SLOWEST).filter_map(quota).collect()
}

// === impl Header ===

impl Header {
    fn new(buckets: &Memory, state: Option<LocalState>) -> Self {
        let state = state.unwrap_or(LocalState { gateways: 1, id: String::new(), predecessors: 0 });
        let LocalState { gateways, id, predecessors } = state;
        Self { tidegate_state: VERSION, gateways, predecessors, id, secret: buckets.secret().to_hex() }
    }

    fn secret(&self) -> Option<KeySecret> {
        Some(KeySecret::from_bytes(hex::decode(&self.secret)?.try_into().ok()?))
    }

    fn has_sound_id(&self) -> bool {
        self.id.len() <= 64 && self.id.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }

    fn local_state(&self) -> LocalState {
        LocalState { gateways: self.gateways, id: self.id.clone(), predecessors: self.predecessors }
    }
}

// === impl Line ===

impl Line {
    /// Adds this line; returns whether it fits into `max_len` bytes.
    fn write(&self, lines: &mut Vec<u8>, max_len: usize) -> bool {
        let before = lines.len();
        let is_written = serde_json::to_writer(&mut *lines, self).is_ok() && lines.len() < max_len;
        if is_written {
            lines.push(b'\n');
        } else {
            lines.truncate(before);
        }
        is_written
    }
}

// === impl Store ===

impl Store {
    /// Assumes that `remembered` gateways share the store, and at least `store.min_gateways`, until Redis has counted
    /// them. Logs the number, and where it comes from.
    #[doc(hidden)]
    pub fn assume_gateways(&self, remembered: Option<u32>) {
        backend!(self, |_| {}, |redis| {
            let fallback = redis.store().fallback();
            fallback.assume(remembered.unwrap_or(1));
            let gateways = fallback.gateways();
            let source = match remembered {
                Some(remembered) if remembered == gateways => "the file of `--state`",
                _ if gateways > 1 => "`store.min_gateways`",
                _ => "the default",
            };
            tracing::info!(gateways, source, "assumes a number of gateways until Redis has counted them");
        });
    }

    /// Takes over the number of gateways, the late charges, and the buckets of these limits from the predecessor.
    #[doc(hidden)]
    pub fn take_over(&self, state: &StoreState, limiters: &[Arc<Limiter>]) {
        let buckets = backend!(self, |memory| &**memory, |redis| {
            redis.store().fallback().take_over(state.header.local_state());
            redis.store().fallback().buckets()
        });
        let has_secret = state.header.secret().is_some_and(|secret| buckets.share_secret(secret));
        if !has_secret {
            tracing::warn!("the gateway before this one has another `key_secret`: its buckets are unknown");
        }
        let Imported { buckets, late_charges, owed, receipts, ignored } =
            state.import(self, if has_secret { limiters } else { &[] }, has_secret);
        tracing::info!(buckets, payments = late_charges, owed, ids = receipts, ignored, "took over the limits in use");
    }

    /// Starts to use full shares, since the predecessor has ended, and takes over its last local grants. `last` is
    /// `None` if it was killed.
    #[doc(hidden)]
    pub fn predecessor_ended(&self, last: Option<&StoreState>) {
        backend!(self, |memory| reservations::settle(memory, last), |redis| {
            let fallback = redis.store().fallback();
            for line in last.iter().flat_map(|last| last.lines()) {
                let Some(Line::LateCharge(late_charge)) = line else { continue };
                let Some(late_charge) = late_charge.read(&HashMap::new(), fallback.now()) else { continue };
                fallback.charge_granted(&late_charge);
                fallback.adopt(late_charge);
            }
            fallback.end_predecessors();
        });
    }

    /// Starts to decide by a part of each share, since a successor takes over. Returns the state for the successor, with
    /// this data of operators.
    #[doc(hidden)]
    pub fn begin_handover(&self, operators: &OperatorData) -> SentState {
        let (state, buckets) = backend!(self, |memory| (None, &**memory), |redis| {
            let fallback = redis.store().fallback();
            (Some(fallback.begin_handover()), fallback.buckets())
        });
        let mut sent = SentState::new(buckets, state);
        self.add_late_charges(&mut sent);
        sent.add_operators(operators);
        sent.add_post_paid(backend!(self, |memory| memory.post_paid(), |redis| redis.store().post_paid()));
        // First: a settlement in the meantime is charged by both, and not by none.
        sent.add_reservations(buckets);
        sent.add_buckets(buckets);
        sent.add_receipts(buckets);
        sent
    }

    /// Forgets the local grants that were sent: the successor serves, and charges them.
    #[doc(hidden)]
    pub fn finish_handover(&self, sent: &SentState) {
        backend!(self, |_| {}, |redis| {
            redis.store().fallback().forget_late_charges(&sent.late_charges);
        });
    }

    /// Returns the permits that this gateway granted locally during its drain and has not charged, and the costs of reservations
    /// that the successor has, or `None`.
    #[doc(hidden)]
    pub fn last_grants(&self) -> Option<SentState> {
        backend!(self, |memory| SentState::of_settlements(memory), |redis| {
            let mut sent = SentState::new(redis.store().fallback().buckets(), None);
            self.add_late_charges(&mut sent);
            (!sent.late_charges.is_empty()).then_some(sent)
        })
    }

    /// Returns the number of gateways that Redis has counted, and its changes. Returns `None` for an embedded store.
    #[doc(hidden)]
    pub fn counted_gateways(&self) -> Option<watch::Receiver<Option<u32>>> {
        backend!(self, |_| None, |redis| Some(redis.store().fallback().counted()))
    }

    fn add_late_charges(&self, sent: &mut SentState) {
        backend!(self, |_| {}, |redis| {
            let (late_charges, now) = redis.store().fallback().late_charges();
            let mut left_out = 0;
            for late_charge in &late_charges {
                let line = SerializedLateCharge::new(late_charge, now).map(Line::LateCharge);
                match line.is_some_and(|line| line.write(&mut sent.bytes, MAX_LATE_CHARGE_BYTES)) {
                    true => sent.late_charges.push(late_charge.id),
                    false => left_out += late_charge.permits(),
                }
            }
            if left_out > 0 {
                tracing::warn!(permits = left_out, "some permits that are owed are not handed over");
            }
        });
    }

    fn adopt(&self, late_charge: SerializedLateCharge, limiters: &HashMap<&str, &Arc<Limiter>>) -> Option<u64> {
        backend!(self, |_| None, |redis| {
            let fallback = redis.store().fallback();
            let late_charge = late_charge.read(limiters, fallback.now())?;
            let permits = late_charge.permits();
            fallback.adopt(late_charge);
            Some(permits)
        })
    }

    fn import_post_paid(&self, limit: &str, millis: u64) {
        let limits = backend!(self, |memory| memory.post_paid(), |redis| redis.store().post_paid());
        import_post_paid(limits, limit, millis);
    }

    fn import_receipt(&self, receipt: SerializedReceipt, limiters: &HashMap<&str, &Arc<Limiter>>) -> bool {
        backend!(self, |memory| receipt.import(memory, limiters), |_| false)
    }

    fn import_bucket(&self, limiter: &Arc<Limiter>, quotas: &[Quota], owner: &str, numbers: &[i64]) -> bool {
        let Some(owner) = hex::decode(owner).and_then(|owner| owner.try_into().ok()) else { return false };
        backend!(self, |memory| memory.import(limiter, quotas, owner, numbers), |redis| redis
            .store()
            .fallback()
            .import(limiter, quotas, owner, numbers))
    }
}

// === impl SentState ===

impl SentState {
    fn new(buckets: &Memory, state: Option<LocalState>) -> Self {
        let mut bytes = serde_json::to_vec(&Header::new(buckets, state)).unwrap_or_default();
        bytes.push(b'\n');
        Self { bytes, late_charges: Vec::new() }
    }

    /// Adds the buckets of an embedded store.
    fn add_buckets(&mut self, memory: &Memory) {
        let (mut last, mut too_many) = (None, 0);
        let left_out = memory.export(MAX_STATE - self.bytes.len(), |limiter, quotas, owner, numbers| {
            let slowest: Vec<_> = quotas.iter().map(|quota| (quota.rate(), quota.interval())).collect();
            let limit = (limiter.name.clone(), limiter.mode, limiter.quota.algorithm().name(), slowest);
            if last.as_ref() != Some(&limit) {
                let (name, mode, algorithm) = (limit.0.clone(), SerializedMode::new(limit.1), limit.2.to_owned());
                let line = Line::Limit { name, mode, algorithm, slowest: limit.3.clone() };
                _ = line.write(&mut self.bytes, MAX_STATE);
                last = Some(limit);
            }
            let line = Line::Bucket(hex::encode(&owner), numbers.to_vec());
            too_many += usize::from(!line.write(&mut self.bytes, MAX_STATE));
        });
        if left_out + too_many > 0 {
            tracing::warn!(
                buckets = left_out + too_many,
                "some buckets in use are not handed over: there are too many"
            );
        }
    }
}
