//! Reads DER (X.690), as far as certificates need it: one value after the other, each with its tag.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// Values that follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Der<'d>(pub(super) &'d [u8]);

impl<'d> Der<'d> {
    /// The next value, which has this tag.
    pub(super) fn value(&mut self, wanted: u8) -> Option<&'d [u8]> {
        let (tag, value) = self.next()?;
        (tag == wanted).then_some(value)
    }

    /// The values in the next one, which has this tag.
    pub(super) fn enter(&mut self, wanted: u8) -> Option<Self> {
        self.value(wanted).map(Der)
    }

    /// The next value, if it has this tag; else it stays.
    pub(super) fn optional(&mut self, wanted: u8) -> Option<&'d [u8]> {
        if self.0.first() == Some(&wanted) { self.value(wanted) } else { None }
    }
}

/// Each value with its tag, until the end, or where there is no DER.
impl<'d> Iterator for Der<'d> {
    type Item = (u8, &'d [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_one_after_the_other_whatever_their_length() {
        let long = [&[OCTETS, 0x82, 0x01, 0x00][..], &[7; 256], &[INTEGER, 1, 5]].concat();
        let mut der = Der(&long);
        assert_eq!(der.optional(INTEGER), None);
        assert_eq!(der.value(OCTETS), Some(&[7; 256][..]));
        assert_eq!(der.optional(INTEGER), Some(&[5][..]));
        assert_eq!(der.next(), None);
    }

    #[test]
    fn what_is_no_der_ends_it() {
        for bad in [&[INTEGER][..], &[INTEGER, 2, 1], &[INTEGER, 0x80, 0, 0], &[INTEGER, 0x85, 0, 0, 0, 0, 1, 1]] {
            assert_eq!(Der(bad).next(), None, "{bad:?}");
        }
        assert_eq!(Der(&[INTEGER, 0x84, 0xff, 0xff, 0xff, 0xff]).next(), None);
    }
}
