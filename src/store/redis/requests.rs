//! The requests of a call, as the script takes them (`lua/admit.lua`): what they ask for, told once for all in a run that
//! are alike but for whose buckets they ask for.

/// What a kind of request asks of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Of the call's. It goes without saying in the script: the buckets of a run are all of one.
    pub(super) limiter: usize,
    /// Of the bucket, among all of the call.
    pub(super) number: u16,
    pub(super) how: How,
    pub(super) permits: u32,
}

/// In what way, beside the other requests of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Others may ask for the bucket, too.
    Live = 0,
    /// Only watches.
    Shadow = 1,
    /// No other request of the call asks for the bucket.
    Alone = 2,
    /// No other kind of the call asks for any bucket of this one.
    Row = 3,
}

/// The requests, in the order in which they are decided.
#[derive(Debug, Default)]
pub(super) struct Requests {
    bytes: Vec<u8>,
    /// What the first kind of the last run asks for; how many of each kind, how many kinds, and where that is written.
    first: Vec<Asked>,
    count: u32,
    kinds: u16,
    at: usize,
}

// === impl Requests ===

impl Requests {
    /// With room for so many kinds, and so many limits of all.
    pub(super) fn with_capacity(kinds: usize, limits: usize) -> Self {
        Self { bytes: Vec::with_capacity(7 * (kinds + limits)), ..Self::default() }
    }

    /// Adds so many requests of a kind at the end.
    pub(super) fn push(&mut self, count: u32, kind: &[Asked]) {
        if self.goes_on_with(count, kind) {
            self.kinds += 1;
            self.bytes[self.at..][..2].copy_from_slice(&self.kinds.to_le_bytes());
            return;
        }
        (self.count, self.kinds) = (count, 1);
        self.first.clear();
        self.first.extend_from_slice(kind);
        self.bytes.extend(count.to_le_bytes());
        self.at = self.bytes.len();
        self.bytes.extend(self.kinds.to_le_bytes());
        // A route has at most as many limits as fit here, and a call as many buckets.
        self.bytes.push(u8::try_from(kind.len()).unwrap_or(u8::MAX));
        for one in kind {
            self.bytes.extend(one.number.to_le_bytes());
            self.bytes.push(one.how as u8);
            self.bytes.extend(one.permits.to_le_bytes());
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Is it the next kind of the last run: are its own buckets those that come after the ones before?
    fn goes_on_with(&self, count: u32, kind: &[Asked]) -> bool {
        let alike = |(first, next): (&Asked, &Asked)| first.after(self.kinds) == Some(*next);
        self.count == count && self.first.len() == kind.len() && self.first.iter().zip(kind).all(alike)
    }
}

// === impl Asked ===

impl Asked {
    /// The same, so many kinds further in a run.
    fn after(self, kinds: u16) -> Option<Self> {
        let steps = if matches!(self.how, How::Alone | How::Row) { kinds } else { 0 };
        Some(Self { number: self.number.checked_add(steps)?, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(number: u16, how: How) -> Asked {
        Asked { limiter: 0, number, how, permits: 1 }
    }

    fn runs(kinds: &[(u32, &[Asked])]) -> Vec<(u32, u16)> {
        let mut requests = Requests::with_capacity(kinds.len(), 2);
        kinds.iter().for_each(|(count, kind)| requests.push(*count, kind));
        let (mut bytes, mut runs) = (requests.bytes(), Vec::new());
        while let [a, b, c, d, e, f, limits, rest @ ..] = bytes {
            runs.push((u32::from_le_bytes([*a, *b, *c, *d]), u16::from_le_bytes([*e, *f])));
            bytes = &rest[7 * usize::from(*limits)..];
        }
        assert!(bytes.is_empty());
        runs
    }

    #[test]
    fn requests_for_one_bucket_after_the_other_are_one_run() {
        let of = |number| [asked(1, How::Live), asked(number, How::Alone)];
        assert_eq!(runs(&[(1, &of(4)), (1, &of(5)), (1, &of(6))]), [(1, 3)]);
        assert_eq!(runs(&[(2, &[asked(1, How::Row)]), (2, &[asked(2, How::Row)])]), [(2, 2)]);
    }

    #[test]
    fn a_run_ends_where_anything_but_the_next_bucket_is_asked_for() {
        let one = &[asked(4, How::Alone)][..];
        for (count, other) in [
            (1, &[asked(4, How::Alone)][..]),
            (1, &[asked(6, How::Alone)]),
            (2, &[asked(5, How::Alone)]),
            (1, &[asked(5, How::Row)]),
            (1, &[Asked { permits: 2, ..asked(5, How::Alone) }]),
            // The first bucket of the next limiter.
            (1, &[Asked { limiter: 1, ..asked(5, How::Alone) }]),
            (1, &[asked(5, How::Alone), asked(9, How::Live)]),
        ] {
            assert_eq!(runs(&[(1, one), (count, other)]), [(1, 1), (count, 1)], "{other:?}");
        }
        let shared = |number| [asked(number, How::Live)];
        assert_eq!(runs(&[(1, &shared(1)), (1, &shared(2))]), [(1, 1), (1, 1)]);
    }
}
