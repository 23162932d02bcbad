//! Finds trailers of HTTP/2 that have a pseudo-header field, which makes a message malformed (RFC 9113 section 8.1).
//!
//! `h2` silently drops such fields from trailers. It rejects a pseudo-header field behind another field, so the first field
//! of a header block tells. Its name may be in the dynamic table (RFC 7541): one bit for each entry says whether its
//! name belongs to a pseudo-header field. Evicted entries need no care, since `h2` ends a connection that refers to one.

/// The representations of HPACK (RFC 7541 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Indexed,
    /// A literal that is added to the dynamic table.
    Added,
    /// A literal that is not.
    NotAdded,
    SizeUpdate,
}

/// The strings of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Name,
    Value,
}

/// The meaning of the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The first of a representation.
    Field,
    /// More of an index.
    Index { kind: Kind, value: u32, shift: u32 },
    /// The first of a string's length.
    Length(Text),
    /// More of a string's length.
    MoreLength { text: Text, value: u32, shift: u32, huffman: bool },
    /// The first of a name.
    Name { length: u32, huffman: bool },
    /// The rest of a string.
    Skip { text: Text, left: u32 },
    /// Nothing: it is no HPACK, and `h2` ends the connection.
    Lost,
}

/// Reads the header blocks of one direction of a connection.
#[derive(Debug)]
pub(super) struct Blocks {
    expected: Expected,
    /// One bit for each entry of the dynamic table, the latest first: set if its name belongs to a pseudo-header field. 4 KiB hold at
    /// most 128 entries.
    entries: u128,
    /// Whether the present literal is added, and has a name of a pseudo-header field.
    is_added: bool,
    is_pseudo: bool,
    /// Of the present block's first field.
    first: Option<bool>,
}

/// The entries of the static table that are pseudo-header fields, and how many entries it has.
const PSEUDO: std::ops::RangeInclusive<u32> = 1..=14;
const STATIC: u32 = 61;

/// The code of a colon, seven bits (RFC 7541 appendix B).
const HUFFMAN_COLON: u8 = 0x5c;

impl Blocks {
    pub(super) fn new() -> Self {
        Self { expected: Expected::Field, entries: 0, is_added: false, is_pseudo: false, first: None }
    }

    /// Begins a header block.
    pub(super) fn begin(&mut self) {
        self.first = None;
        if self.expected != Expected::Lost {
            self.expected = Expected::Field;
        }
    }

    /// Whether the block so far begins with a pseudo-header field.
    pub(super) fn has_pseudo(&self) -> bool {
        self.first == Some(true)
    }

    /// Reads a fragment of the block.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while let Some((byte, rest)) = bytes.split_first() {
            if let Expected::Skip { text, left } = self.expected {
                let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                bytes = &bytes[count..];
                // It fits: it is not more than `left`.
                self.skip(text, left - u32::try_from(count).unwrap_or(left));
                continue;
            }
            bytes = rest;
            self.step(*byte);
        }
    }

    fn step(&mut self, byte: u8) {
        self.expected = match self.expected {
            Expected::Field => {
                let (kind, prefix) = match byte {
                    0x80.. => (Kind::Indexed, 0x7f),
                    0x40.. => (Kind::Added, 0x3f),
                    0x20.. => (Kind::SizeUpdate, 0x1f),
                    _ => (Kind::NotAdded, 0x0f),
                };
                let value = u32::from(byte & prefix);
                if byte & prefix < prefix {
                    return self.index(kind, value);
                }
                Expected::Index { kind, value, shift: 0 }
            }
            Expected::Index { kind, value, shift } => match add(value, shift, byte) {
                None => Expected::Lost,
                Some(value) if byte < 0x80 => return self.index(kind, value),
                Some(value) => Expected::Index { kind, value, shift: shift + 7 },
            },
            Expected::Length(text) => {
                let (value, huffman) = (u32::from(byte & 0x7f), byte >= 0x80);
                if value < 0x7f {
                    return self.length(text, value, huffman);
                }
                Expected::MoreLength { text, value, shift: 0, huffman }
            }
            Expected::MoreLength { text, value, shift, huffman } => match add(value, shift, byte) {
                None => Expected::Lost,
                Some(value) if byte < 0x80 => return self.length(text, value, huffman),
                Some(value) => Expected::MoreLength { text, value, shift: shift + 7, huffman },
            },
            Expected::Name { length, huffman } => {
                self.is_pseudo = if huffman { byte >> 1 == HUFFMAN_COLON } else { byte == b':' };
                return self.skip(Text::Name, length - 1);
            }
            Expected::Skip { .. } | Expected::Lost => Expected::Lost,
        };
    }

    /// The index of a representation is complete.
    fn index(&mut self, kind: Kind, value: u32) {
        self.is_added = kind == Kind::Added;
        match kind {
            Kind::SizeUpdate => self.expected = Expected::Field,
            Kind::Indexed => {
                self.is_pseudo = self.is_pseudo_at(value);
                self.end_field();
            }
            Kind::Added | Kind::NotAdded if value == 0 => self.expected = Expected::Length(Text::Name),
            Kind::Added | Kind::NotAdded => {
                self.is_pseudo = self.is_pseudo_at(value);
                self.expected = Expected::Length(Text::Value);
            }
        }
    }

    fn is_pseudo_at(&self, index: u32) -> bool {
        let entry = || self.entries.checked_shr(index - STATIC - 1).unwrap_or(0) & 1 == 1;
        if index > STATIC { entry() } else { PSEUDO.contains(&index) }
    }

    /// The length of a string is complete.
    fn length(&mut self, text: Text, length: u32, huffman: bool) {
        match (text, length) {
            (Text::Name, 1..) => self.expected = Expected::Name { length, huffman },
            (Text::Name, 0) => {
                self.is_pseudo = false;
                self.skip(text, 0);
            }
            (Text::Value, _) => self.skip(text, length),
        }
    }

    /// Skips the rest of a string, `left` bytes.
    fn skip(&mut self, text: Text, left: u32) {
        match (text, left) {
            (_, 1..) => self.expected = Expected::Skip { text, left },
            (Text::Name, 0) => self.expected = Expected::Length(Text::Value),
            (Text::Value, 0) => {
                if self.is_added {
                    self.entries = self.entries << 1 | u128::from(self.is_pseudo);
                }
                self.end_field();
            }
        }
    }

    fn end_field(&mut self) {
        self.first.get_or_insert(self.is_pseudo);
        self.expected = Expected::Field;
    }
}

/// Adds seven bits to an integer (RFC 7541 section 5.1); `None` if it becomes larger than any that `h2` reads.
fn add(value: u32, shift: u32, byte: u8) -> Option<u32> {
    let more = u32::from(byte & 0x7f);
    if shift > 21 { None } else { value.checked_add(more << shift) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_pseudo(blocks: &mut Blocks, bytes: &[u8], part: usize) -> bool {
        blocks.begin();
        bytes.chunks(part).for_each(|part| blocks.read(part));
        blocks.has_pseudo()
    }

    #[test]
    fn first_field_decides_about_pseudo_headers() {
        for (bytes, is) in [
            (&[][..], false),
            (&[0x82], true),
            (&[0x8e], true),
            (&[0x8f], false),
            (&[0xbe], false),
            (b"\x00\x05:path\x01/", true),
            (b"\x00\x05x:pat\x01/", false),
            (b"\x10\x05:path\x01/", true),
            (b"\x40\x01a\x01b\x82", false),
            (b"\x41\x01a", true),
            (b"\x0f\x2f\x01a", false),
            (b"\x20\x3f\xe1\x1f\x84", true),
            (&[0x00, 0x84, 0xb9, 0x58, 0xd3, 0x3f, 0x01, b'x'], true),
            (b"\x00\x00\x01x\x82", false),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x82], false),
        ] {
            for part in 1..10 {
                assert_eq!(has_pseudo(&mut Blocks::new(), bytes, part), is, "{bytes:02x?}");
            }
        }
    }

    #[test]
    fn dynamic_entries_keep_what_their_names_are() {
        let mut blocks = Blocks::new();
        // Entries 64 to 62: `:authority`, `x`, and a second `:authority` by the name of the first.
        assert!(has_pseudo(&mut blocks, b"\x41\x01a\x40\x01x\x01y\x7f\x00\x01b", 3));
        for (index, is) in [(62, true), (63, false), (64, true), (65, false)] {
            assert_eq!(has_pseudo(&mut blocks, &[0x80 | index], 1), is, "{index}");
        }
        // A value of 300 bytes, whose bytes are no fields.
        let long = [b"\x40\x01x\x7f\xad\x01".as_slice(), &[0x82; 300]].concat();
        assert!(!has_pseudo(&mut blocks, &long, 7));
        assert!(has_pseudo(&mut blocks, &[0xbf], 1) && !has_pseudo(&mut blocks, &[0xbe], 1));
    }
}
