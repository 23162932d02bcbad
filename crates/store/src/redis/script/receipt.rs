//! The receipt of a decision that is made once for an id (`lua/receipts.lua`). It contains all that is needed to give its
//! permits back, because the rules may have changed in the meantime, and the gateway may be another one.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | `T`, or `R` after the permits were given back |
//! | 16 | the keyed hash of the request |
//! | 2, then for each 2 and the key | the number of keys, and the keys with their lengths |
//! | 4, and the text | the limiters, as for `admit` |
//! | 1, then for each 8 | the number of charges; of each: the number from the caller (1), whether it is of a shadow (1), its bucket (2), its permits (4) |
//! | rest | the reply of `admit` |
//!
//! All numbers are big-endian, apart from those in the reply.

use std::slice::from_ref;

use deadpool_redis::redis::{Cmd, Value};

use super::batch::{Batch, must_retry};
use super::buckets::{BucketIndex, RequestedCharge};
use super::reply::Reply;
use crate::StoreError;
use crate::receipts::{RECEIPT_TTL_MILLIS, TakenOnce};
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{ChargeKind, Decision, Outcome, Turn};
use tidegate_rules::settings::store::KeySecret;

/// The first byte of a receipt whose permits were given back.
const RETURNED: u8 = b'R';
const TAKEN: u8 = b'T';

/// A call that decides one request and writes a receipt.
pub(crate) struct OnceCall<'b> {
    /// The request.
    pub(crate) batch: &'b Batch,
    /// The numbers of its charges.
    pub(crate) numbers: &'b [u8],
    /// The keyed hash of the request.
    pub(crate) request: u128,
    /// The key of the receipt.
    pub(crate) key: String,
}

/// The reply to a [`OnceCall`].
pub(crate) enum OnceReply {
    /// The request is decided, or has a receipt.
    Taken(TakenOnce),
    /// Nothing ran, since a calendar limit needs the boundaries around this time of Redis's clock.
    BoundariesNeeded(Timestamp),
    /// The request was refused although permits are available: the call has to be repeated.
    Again,
}

/// A receipt.
#[derive(Debug)]
pub(crate) struct Receipt<'r> {
    is_returned: bool,
    request: u128,
    pub(crate) keys: Vec<&'r str>,
    pub(crate) limiters: &'r str,
    charges: Vec<ReceiptCharge>,
    now: Timestamp,
    decisions: Vec<Decision>,
}

#[derive(Debug)]
struct ReceiptCharge {
    number: u8,
    shadow: bool,
    /// The number of the bucket, from 1.
    bucket: u16,
    permits: u32,
}

// === impl OnceCall ===

impl OnceCall<'_> {
    /// Adds the keys and arguments of the script. `near` is the time that calendar limits are sent the boundaries for, and `now`
    /// the decision time, or an empty text for Redis's own time.
    pub(crate) fn write(&self, call: &mut Cmd, secret: &KeySecret, near: Timestamp, now: &str, random: u64) {
        let (buckets, charges) = self.batch.parts();
        let (mut keys, limiters) = (Vec::new(), buckets.limiter_args(near));
        buckets.each_key(secret, |key| keys.push(key.to_owned()));
        call.arg(keys.len() + 1).arg(&keys).arg(&self.key);
        let requests = if charges.is_empty() { Vec::new() } else { self.batch.encode_requests(0) };
        let shadows: String = charges.iter().map(|charge| if charge.shadow { '1' } else { '0' }).collect();
        call.arg("take_once").arg(&limiters).arg(requests).arg(&random.to_be_bytes()).arg(now);
        call.arg(self.head(&keys, &limiters)).arg(shadows).arg(RECEIPT_TTL_MILLIS);
    }

    /// Returns the start of the receipt.
    fn head(&self, keys: &[String], limiters: &str) -> Vec<u8> {
        let (buckets, charges) = self.batch.parts();
        let first_numbers = buckets.first_numbers();
        let mut head = vec![TAKEN];
        head.extend(self.request.to_be_bytes());
        head.extend(short(keys.len()));
        for key in keys {
            head.extend(short(key.len()));
            head.extend(key.as_bytes());
        }
        head.extend(u32::try_from(limiters.len()).unwrap_or(u32::MAX).to_be_bytes());
        head.extend(limiters.as_bytes());
        head.push(u8::try_from(charges.len()).unwrap_or(u8::MAX));
        for (charge, number) in charges.iter().zip(self.numbers) {
            head.extend([*number, charge.shadow.into()]);
            head.extend(short(charge.bucket.number(&first_numbers)));
            head.extend(charge.permits.to_be_bytes());
        }
        head
    }

    /// Parses the reply of the script.
    ///
    /// # Errors
    /// The script never returns this reply.
    pub(crate) fn read(&self, reply: &Value) -> Result<OnceReply, StoreError> {
        if let Value::Array(list) = reply {
            let [Value::BulkString(receipt)] = &list[..] else { return Err(StoreError::UnexpectedReply) };
            let receipt = Receipt::parse(receipt).ok_or(StoreError::UnexpectedReply)?;
            return Ok(OnceReply::Taken(receipt.repeat(self.request)));
        }
        let (_, charges) = self.batch.parts();
        if charges.is_empty() {
            return Ok(OnceReply::Taken(TakenOnce::Decided(Outcome::with_granted(
                Timestamp::default(),
                Vec::new(),
                true,
            ))));
        }
        Ok(match self.batch.read(reply)? {
            Reply::BoundariesNeeded(now) => OnceReply::BoundariesNeeded(now),
            Reply::Decided(outcomes) => match outcomes.iter(charges).next() {
                Some(outcome) if must_retry(&outcome) => OnceReply::Again,
                Some(outcome) => OnceReply::Taken(TakenOnce::Decided(outcome)),
                None => return Err(StoreError::UnexpectedReply),
            },
        })
    }
}

/// Returns a number in two bytes. The keys of a request are few, and shorter than that.
fn short(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes()
}

// === impl Receipt ===

impl<'r> Receipt<'r> {
    /// Parses a receipt. Returns `None` if it is malformed.
    pub(crate) fn parse(mut bytes: &'r [u8]) -> Option<Self> {
        let rest = &mut bytes;
        let [state] = take(rest)?;
        let request = u128::from_be_bytes(take(rest)?);
        let mut keys = Vec::new();
        for _ in 0..u16::from_be_bytes(take(rest)?) {
            let length = u16::from_be_bytes(take(rest)?);
            keys.push(text(rest, length.into())?);
        }
        let length = u32::from_be_bytes(take(rest)?);
        let limiters = text(rest, usize::try_from(length).ok()?)?;
        let [count] = take(rest)?;
        let mut charges = Vec::new();
        for _ in 0..count {
            let [number, shadow] = take(rest)?;
            let (bucket, permits) = (u16::from_be_bytes(take(rest)?), u32::from_be_bytes(take(rest)?));
            charges.push(ReceiptCharge { number, shadow: shadow != 0, bucket, permits });
        }
        let (now, decisions) = decisions(rest, &charges)?;
        Some(Self { is_returned: state == RETURNED, request, keys, limiters, charges, now, decisions })
    }

    pub(crate) fn is_returned(&self) -> bool {
        self.is_returned
    }

    /// Returns the result of another request with the id.
    pub(crate) fn repeat(&self, request: u128) -> TakenOnce {
        match (self.request == request, self.is_returned) {
            (false, _) => TakenOnce::OtherRequest,
            (true, true) => TakenOnce::Returned,
            (true, false) => {
                let numbers = self.charges.iter().map(|charge| charge.number);
                TakenOnce::Repeated(numbers.zip(self.decisions.iter().copied()).collect())
            }
        }
    }

    /// Returns for each bucket the permits that were taken, and when: the numbers of `give_back`.
    pub(crate) fn grants(&self) -> String {
        let mut charges: Vec<_> = self.charges.iter().zip(&self.decisions).collect();
        charges.sort_by_key(|(charge, _)| charge.bucket);
        let grants = charges.into_iter().map(|(charge, decision)| {
            let permits = if decision.granted { charge.permits } else { 0 };
            format!("{permits} {}", self.now.plus_millis(decision.delay).as_millis())
        });
        grants.collect::<Vec<_>>().join(" ")
    }
}

/// Parses the reply of `admit` about these charges of one request.
fn decisions(reply: &[u8], charges: &[ReceiptCharge]) -> Option<(Timestamp, Vec<Decision>)> {
    if charges.is_empty() {
        return Some((Timestamp::default(), Vec::new()));
    }
    let requested = |charge: &ReceiptCharge| {
        let (bucket, kind, turn) = (BucketIndex { limiter: 0, bucket: 0 }, ChargeKind::Take, Turn::Any);
        RequestedCharge { bucket, is_slot: false, shadow: charge.shadow, kind, permits: charge.permits, turn }
    };
    let requested: Vec<_> = charges.iter().map(requested).collect();
    let run = (1, &requested[..]);
    let Reply::Decided(outcomes) = Reply::read(reply, from_ref(&run).iter().copied())? else { return None };
    let outcome = outcomes.iter(&requested).next()?;
    Some((outcome.now, outcome.decisions))
}

/// Takes `N` bytes from the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (front, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*front)
}

/// Takes a text of this length from the front.
fn text<'r>(bytes: &mut &'r [u8], length: usize) -> Option<&'r str> {
    let (front, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    std::str::from_utf8(front).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_receipts_are_not_parsed() {
        let mut bytes = vec![TAKEN];
        bytes.extend(7_u128.to_be_bytes());
        bytes.extend([0, 1, 0, 3]);
        bytes.extend(b"key");
        bytes.extend(b"\0\0\0\x04gcra\x01\x02\x01\0\x01\0\0\0\x05");
        let reply =
            [&1_000_u64.to_le_bytes()[..], &1_u32.to_le_bytes(), &[1], &4_u32.to_le_bytes(), &[9, 0, 0, 0, 0, 0]];
        bytes.extend(reply.concat());
        let receipt = Receipt::parse(&bytes).expect("a receipt");
        assert_eq!(
            (receipt.keys.as_slice(), receipt.limiters, receipt.grants()),
            (&["key"][..], "gcra", "5 1000".into())
        );
        let TakenOnce::Repeated(decisions) = receipt.repeat(7) else { panic!("not repeated") };
        assert_eq!((decisions[0].0, decisions[0].1.remaining, decisions[0].1.reset), (2, 4, 9));
        assert_eq!(receipt.repeat(8), TakenOnce::OtherRequest);
        for end in 0..bytes.len() {
            assert!(Receipt::parse(&bytes[..end]).is_none(), "{end}");
        }
        bytes[0] = RETURNED;
        assert_eq!(Receipt::parse(&bytes).expect("a receipt").repeat(7), TakenOnce::Returned);
    }
}
