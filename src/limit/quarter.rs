//! Divides one share of a limit between two gateways while one of them drains: it keeps a quarter, the other has the
//! rest.

use super::{Algorithm, Quota, leaky_bucket};

/// The number of parts of a share. A gateway that drains keeps one part.
const PARTS: u32 = 4;

impl Quota {
    /// Returns a quarter of this quota, rounded down, or `None` if that is less than one permit.
    pub(crate) fn quarter(&self) -> Option<Self> {
        self.scaled(|permits| permits / PARTS)
    }

    /// Returns this quota without its [`quarter`](Self::quarter).
    pub(crate) fn without_quarter(&self) -> Self {
        self.scaled(|permits| permits - permits / PARTS).unwrap_or(*self)
    }

    fn scaled(&self, part: impl Fn(u32) -> u32) -> Option<Self> {
        let part = |permits: u32| Some(part(permits)).filter(|part| *part > 0);
        let algorithm = match self.algorithm {
            Algorithm::Gcra { burst } => Algorithm::Gcra { burst: part(burst)? },
            // One request needs no queue: it is forwarded at once.
            Algorithm::LeakyBucket(queue) => Algorithm::LeakyBucket(leaky_bucket::Queue {
                length: part(queue.length.saturating_add(1))? - 1,
                ..queue
            }),
            same @ (Algorithm::TokenBucket
            | Algorithm::SlidingWindow { .. }
            | Algorithm::FixedWindow(_)
            | Algorithm::Redisson(_)) => same,
        };
        Some(Self { rate: part(self.rate)?, algorithm, ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarter_and_rest_are_the_whole() {
        for permits in [1, 3, 4, 5, 10, 1_000_003] {
            let quota = Quota::new(permits.into(), 1_000, Algorithm::Gcra { burst: permits }).expect("a quota");
            let (quarter, rest) = (quota.quarter(), quota.without_quarter());
            let of = |quota: &Quota| (quota.rate(), quota.capacity());
            let (rate, burst) = quarter.as_ref().map_or((0, 0), of);
            assert_eq!((rate + rest.rate(), burst + rest.capacity()), (permits, permits));
            assert_eq!(quarter.is_none(), permits < PARTS);
        }
    }
}
