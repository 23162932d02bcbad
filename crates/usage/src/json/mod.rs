//! A scanner that finds values in a JSON text (RFC 8259) without storing the text.
//!
//! The text arrives in pieces, which end anywhere. The scanner stores keys and short values only, so a stream takes a
//! few hundred bytes. It accepts some texts that are not JSON: invalid UTF-8, control characters in strings, and unusual
//! numbers. In a valid text, it finds what a parser finds; of repeated members, it reports each.

mod pointers;
mod text;

use std::sync::Arc;

use memchr::memchr2;
use smallvec::SmallVec;

use self::pointers::Place;
pub use self::pointers::{Field, MAX_KEY, PointerError, Pointers};
use self::text::{BadEscape, Escapes, ShortText};

/// The deepest nesting of arrays and objects.
pub const MAX_DEPTH: usize = 128;

/// Receives the values at the places of [`Pointers`].
pub trait Sink {
    /// A value. `at` is the offset of its first byte in the text.
    fn value(&mut self, field: Field, value: Value<'_>, at: u64);

    /// Some bytes of strings in a counted place. Bytes of keys do not count.
    fn text(&mut self, field: Field, bytes: usize);

    /// Whether the scanner looks for lookalikes.
    const SEES_LOOKALIKES: bool = false;

    /// A key that differs from the key of a place only in upper and lower case. Some parsers would use its value.
    fn lookalike(&mut self) {}
}

/// A value. Of an array or object, its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number as it was written, if it has at most [`MAX_KEY`] bytes.
    Number(&'a [u8]),
    /// A string, decoded, if it has at most [`MAX_KEY`] bytes.
    String(&'a [u8]),
    /// A number or a string that is longer.
    Long,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// The text is not JSON, or nested too deeply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not JSON")]
pub struct Malformed;

/// The scanner of one text.
#[derive(Clone, Debug)]
pub struct Scanner {
    pointers: Arc<Pointers>,
    state: State,
    /// The open arrays and objects.
    levels: SmallVec<[Level; 8]>,
    /// The place of the current value, or of the next one.
    place: Place,
    /// The bytes of earlier pieces.
    scanned: u64,
    /// The offset of the current value.
    at: u64,
    text: ShortText,
    escapes: Escapes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a value.
    Value,
    /// Before the first element of an array, or its end.
    FirstElement,
    /// Before the first key of an object, or its end.
    FirstKey,
    /// Before a key.
    Key,
    /// Before the colon after a key.
    Colon,
    /// After a value.
    AfterValue,
    InKey,
    InString,
    InNumber,
    /// In `true`, `false` or `null`, with these bytes left.
    InLiteral(&'static [u8]),
    Malformed,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    place: Place,
    /// The index of the current element; `None` in an object.
    index: Option<u32>,
}

impl Scanner {
    /// Creates a scanner of one text.
    pub fn new(pointers: Arc<Pointers>) -> Self {
        let place = pointers.root();
        let (levels, text, escapes) = <(SmallVec<_>, ShortText, Escapes)>::default();
        Self { pointers, state: State::Value, levels, place, scanned: 0, at: 0, text, escapes }
    }

    /// Starts another text.
    pub fn reset(&mut self) {
        self.state = State::Value;
        self.levels.clear();
        (self.scanned, self.at) = (0, 0);
        self.place = self.pointers.root();
        self.escapes = Escapes::default();
    }

    /// Scans the next piece of the text.
    ///
    /// # Errors
    /// The text is not JSON. All later calls fail too, until [`reset`](Self::reset).
    pub fn push(&mut self, piece: &[u8], sink: &mut impl Sink) -> Result<(), Malformed> {
        let result = self.scan(piece, sink).inspect_err(|_| self.state = State::Malformed);
        self.scanned += piece.len() as u64;
        result
    }

    /// Ends the text.
    ///
    /// # Errors
    /// The text is not complete.
    pub fn end(&mut self, sink: &mut impl Sink) -> Result<(), Malformed> {
        if self.state == State::InNumber {
            self.end_number(sink);
        }
        if self.state == State::AfterValue && self.levels.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    fn scan(&mut self, mut piece: &[u8], sink: &mut impl Sink) -> Result<(), Malformed> {
        let end = self.scanned + piece.len() as u64;
        while let Some((&byte, rest)) = piece.split_first() {
            piece = match self.state {
                State::InKey | State::InString => self.string(piece, sink)?,
                State::InNumber => self.number(piece, sink),
                State::InLiteral(left) => self.literal(byte, left).map(|()| rest)?,
                State::Malformed => return Err(Malformed),
                _ if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => rest,
                State::Value => self.start_value(byte, piece, end, sink)?,
                State::FirstElement if byte == b']' => self.end_container(rest),
                State::FirstElement => self.start_value(byte, piece, end, sink)?,
                State::FirstKey if byte == b'}' => self.end_container(rest),
                State::FirstKey | State::Key => self.start_string(byte, State::InKey).map(|()| rest)?,
                State::Colon if byte == b':' => {
                    self.state = State::Value;
                    rest
                }
                State::Colon => return Err(Malformed),
                State::AfterValue => self.after_value(byte).map(|()| rest)?,
            };
        }
        Ok(())
    }

    /// Starts a value in a piece that ends at the offset `end`.
    fn start_value<'p>(
        &mut self,
        byte: u8,
        piece: &'p [u8],
        end: u64,
        sink: &mut impl Sink,
    ) -> Result<&'p [u8], Malformed> {
        self.at = end - piece.len() as u64;
        let rest = &piece[1..];
        match byte {
            b'"' => self.start_string(byte, State::InString)?,
            b'{' => self.start_container(Value::Object, sink)?,
            b'[' => self.start_container(Value::Array, sink)?,
            b't' => self.start_literal(b"rue", Value::Bool(true), sink),
            b'f' => self.start_literal(b"alse", Value::Bool(false), sink),
            b'n' => self.start_literal(b"ull", Value::Null, sink),
            b'-' | b'0'..=b'9' => {
                self.text.clear();
                self.state = State::InNumber;
                return Ok(piece);
            }
            _ => return Err(Malformed),
        }
        Ok(rest)
    }

    fn start_container(&mut self, value: Value<'_>, sink: &mut impl Sink) -> Result<(), Malformed> {
        if self.levels.len() == MAX_DEPTH {
            return Err(Malformed);
        }
        self.report(value, sink);
        let is_array = value == Value::Array;
        self.levels.push(Level { place: self.place, index: is_array.then_some(0) });
        self.state = if is_array { State::FirstElement } else { State::FirstKey };
        if is_array {
            self.place = self.pointers.element(self.place, 0);
        }
        Ok(())
    }

    fn end_container<'p>(&mut self, rest: &'p [u8]) -> &'p [u8] {
        self.levels.pop();
        self.state = State::AfterValue;
        rest
    }

    fn after_value(&mut self, byte: u8) -> Result<(), Malformed> {
        let level = self.levels.last_mut().ok_or(Malformed)?;
        match (byte, &mut level.index) {
            (b',', Some(index)) => {
                *index = index.saturating_add(1);
                self.place = self.pointers.element(level.place, *index);
                self.state = State::Value;
            }
            (b',', None) => self.state = State::Key,
            (b']', Some(_)) | (b'}', None) => {
                self.levels.pop();
            }
            _ => return Err(Malformed),
        }
        Ok(())
    }

    fn start_string(&mut self, byte: u8, state: State) -> Result<(), Malformed> {
        self.text.clear();
        self.state = state;
        if byte == b'"' { Ok(()) } else { Err(Malformed) }
    }

    /// Scans the next bytes of a key or of a string value.
    fn string<'p>(&mut self, piece: &'p [u8], sink: &mut impl Sink) -> Result<&'p [u8], Malformed> {
        if self.escapes.is_open() {
            let mut escapes = self.escapes;
            escapes.push(piece[0], |bytes| self.add(bytes, sink)).map_err(|BadEscape| Malformed)?;
            self.escapes = escapes;
            return Ok(&piece[1..]);
        }
        let end = memchr2(b'"', b'\\', piece).unwrap_or(piece.len());
        let is_escape = piece.get(end) == Some(&b'\\');
        if end > 0 || !is_escape {
            let mut escapes = self.escapes;
            escapes.end_surrogate(|bytes| self.add(bytes, sink));
            self.escapes = escapes;
        }
        self.add(&piece[..end], sink);
        match piece.get(end) {
            None => return Ok(&[]),
            Some(_) if is_escape => self.escapes.start(),
            Some(_) => self.end_string(sink),
        }
        Ok(&piece[end + 1..])
    }

    /// Adds decoded bytes of a string.
    fn add(&mut self, bytes: &[u8], sink: &mut impl Sink) {
        if self.state == State::InKey {
            // Without pointers, no key of this object matters.
            if self.levels.last().is_some_and(|level| level.place.has_pointers()) {
                self.text.push(bytes);
            }
            return;
        }
        if let Some(field) = self.place.text
            && !bytes.is_empty()
        {
            sink.text(field, bytes.len());
        }
        if self.pointers.field(self.place).is_some() {
            self.text.push(bytes);
        }
    }

    fn end_string(&mut self, sink: &mut impl Sink) {
        if self.state == State::InKey {
            self.end_key(sink);
            return;
        }
        self.state = State::AfterValue;
        self.report(self.text.whole().map_or(Value::Long, Value::String), sink);
    }

    fn end_key<S: Sink>(&mut self, sink: &mut S) {
        let parent = self.levels.last().map_or_else(Place::default, |level| level.place);
        let key = self.text.whole();
        if S::SEES_LOOKALIKES && key.is_some_and(|key| self.pointers.is_lookalike(parent, key)) {
            sink.lookalike();
        }
        self.place = self.pointers.member(parent, key);
        self.state = State::Colon;
    }

    fn number<'p>(&mut self, piece: &'p [u8], sink: &mut impl Sink) -> &'p [u8] {
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let end = piece.iter().position(|byte| !is_part(byte)).unwrap_or(piece.len());
        self.text.push(&piece[..end]);
        if end < piece.len() {
            self.end_number(sink);
        }
        &piece[end..]
    }

    fn end_number(&mut self, sink: &mut impl Sink) {
        self.state = State::AfterValue;
        self.report(self.text.whole().map_or(Value::Long, Value::Number), sink);
    }

    fn start_literal(&mut self, left: &'static [u8], value: Value<'_>, sink: &mut impl Sink) {
        self.report(value, sink);
        self.state = State::InLiteral(left);
    }

    fn literal(&mut self, byte: u8, left: &'static [u8]) -> Result<(), Malformed> {
        match left {
            [next, rest @ ..] if *next == byte => {
                self.state = if rest.is_empty() { State::AfterValue } else { State::InLiteral(rest) };
                Ok(())
            }
            _ => Err(Malformed),
        }
    }

    fn report(&self, value: Value<'_>, sink: &mut impl Sink) {
        if let Some(field) = self.pointers.field(self.place) {
            sink.value(field, value, self.at);
        }
    }
}

#[cfg(test)]
mod tests;
