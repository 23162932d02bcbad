//! The strings of a JSON text, decoded.

use smallvec::SmallVec;

use super::pointers::MAX_KEY;

/// A key or a short value. Longer ones are cut, and a cut text equals no key.
#[derive(Clone, Debug, Default)]
pub(super) struct ShortText {
    bytes: SmallVec<[u8; MAX_KEY]>,
    is_cut: bool,
}

/// The state within an escape sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Escapes {
    state: Escape,
    /// The first half of a surrogate pair.
    high: Option<u16>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Escape {
    #[default]
    None,
    /// After a backslash.
    Started,
    /// After `\u` and this many digits.
    Unicode { digits: u8, code: u16 },
}

/// A malformed escape sequence.
#[derive(Debug)]
pub(super) struct BadEscape;

impl ShortText {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.is_cut = false;
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        let room = MAX_KEY - self.bytes.len();
        self.is_cut |= piece.len() > room;
        self.bytes.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    /// Returns the whole text, unless it was cut.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        (!self.is_cut).then_some(&self.bytes)
    }
}

impl Escapes {
    /// Returns `true` within an escape sequence.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, Escape::None)
    }

    /// Starts an escape sequence.
    pub(super) fn start(&mut self) {
        self.state = Escape::Started;
    }

    /// Adds a byte of an escape sequence. Calls `decoded` with the bytes of a complete character.
    pub(super) fn push(&mut self, byte: u8, mut decoded: impl FnMut(&[u8])) -> Result<(), BadEscape> {
        match self.state {
            Escape::Started if byte == b'u' => self.state = Escape::Unicode { digits: 0, code: 0 },
            Escape::Unicode { digits, code } => {
                let digit =
                    char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok()).ok_or(BadEscape)?;
                let code = code << 4 | digit;
                if digits < 3 {
                    self.state = Escape::Unicode { digits: digits + 1, code };
                } else {
                    self.state = Escape::None;
                    self.unit(code, decoded);
                }
            }
            _ => {
                self.state = Escape::None;
                self.end_surrogate(&mut decoded);
                decoded(&[simple(byte).ok_or(BadEscape)?]);
            }
        }
        Ok(())
    }

    /// Ends a surrogate pair that has no second half: it counts as the replacement character.
    pub(super) fn end_surrogate(&mut self, mut decoded: impl FnMut(&[u8])) {
        if self.high.take().is_some() {
            write_char(char::REPLACEMENT_CHARACTER, &mut decoded);
        }
    }

    /// A UTF-16 unit.
    fn unit(&mut self, unit: u16, mut decoded: impl FnMut(&[u8])) {
        if let (Some(high), 0xDC00..=0xDFFF) = (self.high, unit) {
            self.high = None;
            let decoded_char = char::decode_utf16([high, unit]).next().and_then(Result::ok);
            return write_char(decoded_char.unwrap_or(char::REPLACEMENT_CHARACTER), &mut decoded);
        }
        self.end_surrogate(&mut decoded);
        if (0xD800..=0xDBFF).contains(&unit) {
            self.high = Some(unit);
        } else {
            write_char(char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER), &mut decoded);
        }
    }
}

/// The character of an escape sequence of two characters (RFC 8259, section 7).
fn simple(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' | b'\\' | b'/' => byte,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return None,
    })
}

fn write_char(character: char, decoded: &mut impl FnMut(&[u8])) {
    decoded(character.encode_utf8(&mut [0; 4]).as_bytes());
}
