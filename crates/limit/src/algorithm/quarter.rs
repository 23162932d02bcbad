//! Divides a share of a limit while a gateway drains: the gateway keeps a quarter, and its successor has the rest.

use crate::Quota;

/// The number of parts of a share. A gateway that drains keeps one part.
const PARTS: u32 = 4;

impl Quota {
    /// Returns a quarter of this quota, rounded down, or `None` if that is less than one permit.
    pub fn quarter(&self) -> Option<Self> {
        let queue = self.algorithm.queue().map_or(u32::MAX, |queue| queue.length.saturating_add(1));
        let smallest = self.rate.min(self.capacity()).min(queue);
        (smallest >= PARTS).then(|| self.with_part(|permits| permits / PARTS))
    }

    /// Returns this quota without its [`quarter`](Self::quarter).
    pub fn without_quarter(&self) -> Self {
        self.with_part(|permits| permits - permits / PARTS)
    }

    fn with_part(&self, part: impl Fn(u32) -> u32 + Copy) -> Self {
        // The queue does not count the request that is forwarded at once.
        self.scaled(part, |length| part(length.saturating_add(1)).saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;
    use crate::algorithm::leaky_bucket::Queue;

    #[test]
    fn quarter_and_rest_are_the_whole() {
        for permits in [1, 3, 4, 5, 10, 1_000_003] {
            let quota = Quota::new(permits.into(), 1_000, Algorithm::Gcra { burst: permits }).expect("a quota");
            let (quarter, rest) = (quota.quarter(), quota.without_quarter());
            let rate_and_capacity = |quota: &Quota| (quota.rate(), quota.capacity());
            let (rate, burst) = quarter.as_ref().map_or((0, 0), rate_and_capacity);
            assert_eq!((rate + rest.rate(), burst + rest.capacity()), (permits, permits));
            assert_eq!(quarter.is_none(), permits < PARTS);
        }
    }

    #[test]
    fn queue_and_the_request_before_it_are_divided_together() {
        for (rate, length, expected) in [(12, 11, Some((2, 8))), (12, 2, None), (3, 11, None), (4, 3, Some((0, 2)))] {
            let queue = |length| Algorithm::LeakyBucket(Queue { length, max_wait: 0 });
            let quota = Quota::new(rate, 1_000, queue(length)).expect("a quota");
            let quarter = quota.quarter().map(|quarter| (quarter.algorithm(), quota.without_quarter().algorithm()));
            assert_eq!(quarter, expected.map(|(kept, rest)| (queue(kept), queue(rest))), "{rate}, {length}");
        }
    }
}
