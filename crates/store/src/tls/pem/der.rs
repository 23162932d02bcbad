//! A reader for the subset of DER (X.690) that certificates use.

/// `INTEGER`.
pub const INTEGER: u8 = 0x02;
/// `OCTET STRING`.
pub const OCTET_STRING: u8 = 0x04;
/// `OBJECT IDENTIFIER`.
pub const OID: u8 = 0x06;
/// `UTCTime`.
pub const UTC_TIME: u8 = 0x17;
/// `GeneralizedTime`.
pub const GENERALIZED_TIME: u8 = 0x18;
/// `SEQUENCE`.
pub const SEQUENCE: u8 = 0x30;
/// `SET`.
pub const SET: u8 = 0x31;

/// A sequence of encoded values that are still to be read.
#[derive(Clone, Copy, Debug)]
pub struct Der<'d>(pub &'d [u8]);

impl<'d> Der<'d> {
    /// Reads the next value. Returns `None` if its tag is not `wanted`.
    pub fn value(&mut self, wanted: u8) -> Option<&'d [u8]> {
        let (tag, value) = self.next()?;
        (tag == wanted).then_some(value)
    }

    /// Returns the values inside the next value. Returns `None` if its tag is not `wanted`.
    pub fn enter(&mut self, wanted: u8) -> Option<Self> {
        self.value(wanted).map(Der)
    }

    /// Reads the next value if its tag is `wanted`, and leaves it otherwise.
    pub fn optional(&mut self, wanted: u8) -> Option<&'d [u8]> {
        if self.0.first() == Some(&wanted) { self.value(wanted) } else { None }
    }
}

/// Yields each value with its tag. Ends at the first value that is malformed.
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
    fn values_of_any_length_are_read_in_order() {
        let long = [&[OCTET_STRING, 0x82, 0x01, 0x00][..], &[7; 256], &[INTEGER, 1, 5]].concat();
        let mut der = Der(&long);
        assert_eq!(der.optional(INTEGER), None);
        assert_eq!(der.value(OCTET_STRING), Some(&[7; 256][..]));
        assert_eq!(der.optional(INTEGER), Some(&[5][..]));
        assert_eq!(der.next(), None);
    }

    #[test]
    fn malformed_value_ends_the_iteration() {
        for bad in [&[INTEGER][..], &[INTEGER, 2, 1], &[INTEGER, 0x80, 0, 0], &[INTEGER, 0x85, 0, 0, 0, 0, 1, 1]] {
            assert_eq!(Der(bad).next(), None, "{bad:?}");
        }
        assert_eq!(Der(&[INTEGER, 0x84, 0xff, 0xff, 0xff, 0xff]).next(), None);
    }
}
