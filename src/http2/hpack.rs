//! Finds HTTP/2 trailers with a pseudo-header field, which makes the message malformed (RFC 9113 section 8.1).
//!
//! `h2` silently drops such fields from trailers. It rejects a pseudo-header field after another field, so it is enough
//! to check the first field of a header block. The name of that field can be in the dynamic table (RFC 7541), so this
//! module keeps one bit for each table entry: whether its name is a pseudo-header name. Evicted entries need no
//! tracking, because `h2` ends a connection that refers to an evicted entry.

/// A field representation of HPACK (RFC 7541 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Representation {
    Indexed,
    /// A literal that is added to the dynamic table.
    IndexedLiteral,
    /// A literal that is not added.
    Literal,
    SizeUpdate,
}

/// The two strings of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringPart {
    Name,
    Value,
}

/// The meaning of the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The first byte of a representation.
    Field,
    /// The next byte of an index.
    Index { kind: Representation, value: u32, shift: u32 },
    /// The first byte of a string's length.
    Length(StringPart),
    /// The next byte of a string's length.
    MoreLength { text: StringPart, value: u32, shift: u32, huffman: bool },
    /// The first byte of a name.
    Name { length: u32, huffman: bool },
    /// The rest of a string.
    Skip { text: StringPart, left: u32 },
    /// Nothing: the bytes are not valid HPACK, and `h2` ends the connection.
    Failed,
}

/// Reads the header blocks of one direction of a connection.
#[derive(Debug)]
pub(super) struct HeaderBlocks {
    expected: Expected,
    /// One bit for each entry of the dynamic table, the latest entry first. Set if the name is a pseudo-header name.
    /// The table of 4 KiB has at most 128 entries.
    entries: u128,
    /// Whether the current literal is added to the table, and whether its name is a pseudo-header name.
    is_added: bool,
    is_pseudo: bool,
    /// Whether the first field of the current block is a pseudo-header field. `None` before its end.
    first: Option<bool>,
    /// The number of pseudo-header fields of the current block.
    pseudo_fields: u32,
}

/// The pseudo-header entries of the static table, and its size.
const PSEUDO_ENTRIES: std::ops::RangeInclusive<u32> = 1..=14;
const STATIC_ENTRIES: u32 = 61;

/// The Huffman code of a colon: seven bits (RFC 7541 appendix B).
const HUFFMAN_COLON: u8 = 0x5c;

impl HeaderBlocks {
    pub(super) fn new() -> Self {
        Self { expected: Expected::Field, entries: 0, is_added: false, is_pseudo: false, first: None, pseudo_fields: 0 }
    }

    /// Starts a header block.
    pub(super) fn begin_block(&mut self) {
        (self.first, self.pseudo_fields) = (None, 0);
        if self.expected != Expected::Failed {
            self.expected = Expected::Field;
        }
    }

    /// Returns `true` if the first field of the block is a pseudo-header field.
    pub(super) fn has_pseudo(&self) -> bool {
        self.first == Some(true)
    }

    /// Returns `true` if the block has more than one pseudo-header field.
    pub(super) fn has_several_pseudo(&self) -> bool {
        self.pseudo_fields > 1
    }

    /// Reads a fragment of the block.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while let Some((byte, rest)) = bytes.split_first() {
            if let Expected::Skip { text, left } = self.expected {
                let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                bytes = &bytes[count..];
                // The conversion cannot fail: `count` is at most `left`.
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
                    0x80.. => (Representation::Indexed, 0x7f),
                    0x40.. => (Representation::IndexedLiteral, 0x3f),
                    0x20.. => (Representation::SizeUpdate, 0x1f),
                    _ => (Representation::Literal, 0x0f),
                };
                let value = u32::from(byte & prefix);
                if byte & prefix < prefix {
                    return self.end_index(kind, value);
                }
                Expected::Index { kind, value, shift: 0 }
            }
            Expected::Index { kind, value, shift } => match add(value, shift, byte) {
                None => Expected::Failed,
                Some(value) if byte < 0x80 => return self.end_index(kind, value),
                Some(value) => Expected::Index { kind, value, shift: shift + 7 },
            },
            Expected::Length(text) => {
                let (value, huffman) = (u32::from(byte & 0x7f), byte >= 0x80);
                if value < 0x7f {
                    return self.end_length(text, value, huffman);
                }
                Expected::MoreLength { text, value, shift: 0, huffman }
            }
            Expected::MoreLength { text, value, shift, huffman } => match add(value, shift, byte) {
                None => Expected::Failed,
                Some(value) if byte < 0x80 => return self.end_length(text, value, huffman),
                Some(value) => Expected::MoreLength { text, value, shift: shift + 7, huffman },
            },
            Expected::Name { length, huffman } => {
                self.is_pseudo = if huffman { byte >> 1 == HUFFMAN_COLON } else { byte == b':' };
                return self.skip(StringPart::Name, length - 1);
            }
            Expected::Skip { .. } | Expected::Failed => Expected::Failed,
        };
    }

    /// Handles the complete index of a representation.
    fn end_index(&mut self, kind: Representation, value: u32) {
        self.is_added = kind == Representation::IndexedLiteral;
        match kind {
            Representation::SizeUpdate => self.expected = Expected::Field,
            Representation::Indexed => {
                self.is_pseudo = self.is_pseudo_at(value);
                self.end_field();
            }
            Representation::IndexedLiteral | Representation::Literal if value == 0 => {
                self.expected = Expected::Length(StringPart::Name);
            }
            Representation::IndexedLiteral | Representation::Literal => {
                self.is_pseudo = self.is_pseudo_at(value);
                self.expected = Expected::Length(StringPart::Value);
            }
        }
    }

    fn is_pseudo_at(&self, index: u32) -> bool {
        let entry = || self.entries.checked_shr(index - STATIC_ENTRIES - 1).unwrap_or(0) & 1 == 1;
        if index > STATIC_ENTRIES { entry() } else { PSEUDO_ENTRIES.contains(&index) }
    }

    /// Handles the complete length of a string.
    fn end_length(&mut self, text: StringPart, length: u32, huffman: bool) {
        match (text, length) {
            (StringPart::Name, 1..) => self.expected = Expected::Name { length, huffman },
            (StringPart::Name, 0) => {
                self.is_pseudo = false;
                self.skip(text, 0);
            }
            (StringPart::Value, _) => self.skip(text, length),
        }
    }

    /// Skips the remaining `left` bytes of a string.
    fn skip(&mut self, text: StringPart, left: u32) {
        match (text, left) {
            (_, 1..) => self.expected = Expected::Skip { text, left },
            (StringPart::Name, 0) => self.expected = Expected::Length(StringPart::Value),
            (StringPart::Value, 0) => {
                if self.is_added {
                    self.entries = self.entries << 1 | u128::from(self.is_pseudo);
                }
                self.end_field();
            }
        }
    }

    fn end_field(&mut self) {
        self.first.get_or_insert(self.is_pseudo);
        self.pseudo_fields = self.pseudo_fields.saturating_add(u32::from(self.is_pseudo));
        self.expected = Expected::Field;
    }
}

/// Adds seven bits to an integer (RFC 7541 section 5.1). Returns `None` if `h2` would reject the integer as too large.
fn add(value: u32, shift: u32, byte: u8) -> Option<u32> {
    let more = u32::from(byte & 0x7f);
    if shift > 21 { None } else { value.checked_add(more << shift) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_pseudo(blocks: &mut HeaderBlocks, bytes: &[u8], part: usize) -> bool {
        blocks.begin_block();
        bytes.chunks(part).for_each(|part| blocks.read(part));
        blocks.has_pseudo()
    }

    #[test]
    fn first_field_decides_about_pseudo_headers() {
        for (bytes, expected) in [
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
                assert_eq!(has_pseudo(&mut HeaderBlocks::new(), bytes, part), expected, "{bytes:02x?}");
            }
        }
    }

    #[test]
    fn pseudo_headers_are_counted() {
        for (bytes, expected) in [
            (&[0x88][..], false),
            (b"\x88\x40\x01a\x01b", false),
            (b"\x88\x00\x05:path\x01/", true),
            (&[0x88, 0x84], true),
        ] {
            let mut blocks = HeaderBlocks::new();
            has_pseudo(&mut blocks, bytes, 1);
            assert_eq!(blocks.has_several_pseudo(), expected, "{bytes:02x?}");
        }
    }

    #[test]
    fn dynamic_entries_remember_pseudo_header_names() {
        let mut blocks = HeaderBlocks::new();
        // Entries 64 to 62: `:authority`, `x`, and a second `:authority` by the name of the first.
        assert!(has_pseudo(&mut blocks, b"\x41\x01a\x40\x01x\x01y\x7f\x00\x01b", 3));
        for (index, expected) in [(62, true), (63, false), (64, true), (65, false)] {
            assert_eq!(has_pseudo(&mut blocks, &[0x80 | index], 1), expected, "{index}");
        }
        // A value of 300 bytes, whose bytes must not be read as fields.
        let long = [b"\x40\x01x\x7f\xad\x01".as_slice(), &[0x82; 300]].concat();
        assert!(!has_pseudo(&mut blocks, &long, 7));
        assert!(has_pseudo(&mut blocks, &[0xbf], 1) && !has_pseudo(&mut blocks, &[0xbe], 1));
    }
}
