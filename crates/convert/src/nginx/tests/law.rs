//! The algorithm of nginx's `limit_req` (`ngx_http_limit_req_module.c` of nginx 1.27), in thousandths of a request.

use std::collections::HashMap;

/// A use of a zone by a request.
#[derive(Clone, Debug)]
pub(super) struct Charge {
    pub(super) zone: &'static str,
    /// A request with an empty key is not counted.
    pub(super) key: String,
    /// Thousandths of a request per second.
    pub(super) rate: i64,
    pub(super) burst: i64,
}

/// The state of all zones: the excess of each key, and its time.
#[derive(Debug, Default)]
pub(super) struct LimitReq {
    zones: HashMap<(&'static str, String), (i64, u64)>,
}

// === impl LimitReq ===

impl LimitReq {
    /// Returns `true` if nginx admits a request, at once or after a delay. It looks up all zones first, so that a request
    /// that one of them rejects is counted by none.
    pub(super) fn admits(&mut self, now: u64, charges: &[Charge]) -> bool {
        let counted: Vec<&Charge> = charges.iter().filter(|charge| !charge.key.is_empty()).collect();
        let mut excesses = Vec::new();
        for charge in &counted {
            let excess = self.excess(now, charge);
            if excess > charge.burst * 1_000 {
                return false;
            }
            excesses.push(excess);
        }
        for (charge, excess) in counted.into_iter().zip(excesses) {
            self.zones.insert((charge.zone, charge.key.clone()), (excess, now));
        }
        true
    }

    /// Returns the excess of a key with this request. A new key has none.
    fn excess(&self, now: u64, charge: &Charge) -> i64 {
        let Some((excess, last)) = self.zones.get(&(charge.zone, charge.key.clone())) else { return 0 };
        let elapsed = i64::try_from(now - last).unwrap();
        (excess - charge.rate * elapsed / 1_000 + 1_000).max(0)
    }
}
