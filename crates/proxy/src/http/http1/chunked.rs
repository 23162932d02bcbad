//! Decodes chunked bodies (RFC 9112 section 7.1) piece by piece, as they arrive.

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{MAX_FIELDS, Malformed};

/// The limit of the bytes of all chunk extensions of a body. In practice only attacks use extensions.
const MAX_EXTENSIONS: u32 = 16 * 1024;

/// The limit of the bytes of all trailers.
const MAX_TRAILERS: usize = 16 * 1024;

/// A decoder for one body.
#[derive(Debug)]
pub(crate) struct Chunked {
    expected: Expected,
    /// Bytes of extensions read so far.
    extensions: u32,
}

/// The next expected input.
#[derive(Debug)]
enum Expected {
    /// A digit of the chunk size, with the value so far.
    Size {
        size: u64,
        digits: u8,
    },
    /// Whitespace after the size, or chunk extensions.
    Extension {
        size: u64,
        at: Ext,
    },
    /// The line feed after the chunk size.
    SizeEnd {
        size: u64,
    },
    /// Chunk data, of which `remaining` bytes follow.
    Data {
        remaining: u64,
    },
    /// The end of a chunk's data: CR, then LF.
    DataCr,
    DataLf,
    /// Trailers up to an empty line, with the bytes so far.
    Trailers(Vec<u8>),
    Nothing,
    /// Nothing: the input was malformed, so the end of the body is unknown.
    Failed,
}

/// A position in chunk extensions: `*( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ext {
    /// After the size or an extension: the next byte may end the line.
    End,
    /// After whitespace that only a semicolon may follow.
    BeforeSemicolon,
    /// Before a name.
    BeforeName,
    Name,
    /// After whitespace behind a name.
    AfterName,
    /// Before a value.
    BeforeValue,
    /// A value that is a token.
    Token,
    /// A value that is a quoted string.
    Quoted,
    /// After a backslash in a quoted string.
    Escaped,
}

/// A decoded piece.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    /// The end of the body, with its trailers if it has any.
    End(Option<HeaderMap>),
    /// More input is needed.
    NeedInput,
}

impl Chunked {
    /// Creates a decoder at the start of a body.
    pub(crate) fn new() -> Self {
        Self { expected: Expected::Size { size: 0, digits: 0 }, extensions: 0 }
    }

    /// Returns `true` if the whole body has been read.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self.expected, Expected::Nothing)
    }

    /// Takes the next piece from the front of `input`.
    ///
    /// # Errors
    /// The body is malformed. Every later call fails too.
    pub(crate) fn read(&mut self, input: &mut Bytes) -> Result<Piece, Malformed> {
        self.next(input).inspect_err(|_| self.expected = Expected::Failed)
    }

    fn next(&mut self, input: &mut Bytes) -> Result<Piece, Malformed> {
        loop {
            match &mut self.expected {
                Expected::Failed => return Err(Malformed),
                Expected::Nothing => return Ok(Piece::End(None)),
                _ if input.is_empty() => return Ok(Piece::NeedInput),
                Expected::Data { remaining } => {
                    let data = input.split_to(usize::try_from(*remaining).unwrap_or(usize::MAX).min(input.len()));
                    *remaining -= data.len() as u64;
                    if *remaining == 0 {
                        self.expected = Expected::DataCr;
                    }
                    return Ok(Piece::Data(data));
                }
                Expected::Trailers(lines) => {
                    let byte = input.get_u8();
                    if byte == b'\n' && lines.last() != Some(&b'\r') {
                        return Err(Malformed); // some parsers accept a bare line feed
                    }
                    lines.push(byte);
                    if byte == b'\n' && (lines == b"\r\n" || lines.ends_with(b"\r\n\r\n")) {
                        let trailers = parse_trailers(lines)?;
                        self.expected = Expected::Nothing;
                        return Ok(Piece::End(trailers));
                    }
                    if lines.len() >= MAX_TRAILERS {
                        return Err(Malformed);
                    }
                }
                _ => self.step(input.get_u8())?,
            }
        }
    }

    /// Reads one byte of the framing around the data.
    fn step(&mut self, byte: u8) -> Result<(), Malformed> {
        self.expected = match (&self.expected, byte) {
            (Expected::Size { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if *digits < 16 => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                Expected::Size { size: size << 4 | digit, digits: digits + 1 }
            }
            (Expected::Size { size, digits: 1.. }, b'\r') => Expected::SizeEnd { size: *size },
            (Expected::Extension { size, at }, b'\r') if at.may_end() => Expected::SizeEnd { size: *size },
            (Expected::Size { size, digits: 1.. }, byte) => self.extend(*size, Ext::End, byte)?,
            (Expected::Extension { size, at }, byte) => self.extend(*size, *at, byte)?,
            // Some parsers accept a bare line feed.
            (Expected::SizeEnd { size: 0 }, b'\n') => Expected::Trailers(Vec::new()),
            (Expected::SizeEnd { size }, b'\n') => Expected::Data { remaining: *size },
            (Expected::DataCr, b'\r') => Expected::DataLf,
            (Expected::DataLf, b'\n') => Expected::Size { size: 0, digits: 0 },
            _ => return Err(Malformed),
        };
        Ok(())
    }

    /// Reads one byte of the whitespace and the extensions after a chunk size.
    fn extend(&mut self, size: u64, at: Ext, byte: u8) -> Result<Expected, Malformed> {
        self.extensions += 1;
        if self.extensions > MAX_EXTENSIONS {
            return Err(Malformed);
        }
        Ok(Expected::Extension { size, at: at.next(byte).ok_or(Malformed)? })
    }
}

impl Ext {
    fn may_end(self) -> bool {
        matches!(self, Self::End | Self::Name | Self::Token)
    }

    /// Returns the position after `byte`, or `None` if `byte` must not stand here.
    fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Quoted, b'"') => Self::End,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted | Self::Escaped, byte) if byte == b'\t' || !byte.is_ascii_control() => Self::Quoted,
            (Self::Quoted | Self::Escaped, _) => return None,
            (Self::BeforeName | Self::AfterName | Self::BeforeValue | Self::BeforeSemicolon, b'\t' | b' ') => self,
            (Self::Name, b'\t' | b' ') => Self::AfterName,
            (Self::End | Self::Token, b'\t' | b' ') => Self::BeforeSemicolon,
            (Self::End | Self::BeforeSemicolon | Self::Name | Self::AfterName | Self::Token, b';') => Self::BeforeName,
            (Self::Name | Self::AfterName, b'=') => Self::BeforeValue,
            (Self::BeforeValue, b'"') => Self::Quoted,
            (Self::BeforeName | Self::Name, byte) if is_token(byte) => Self::Name,
            (Self::BeforeValue | Self::Token, byte) if is_token(byte) => Self::Token,
            _ => return None,
        })
    }
}

/// Returns `true` for a character of a token (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Parses trailer lines that end with an empty line; `None` if there are no trailers.
fn parse_trailers(lines: &[u8]) -> Result<Option<HeaderMap>, Malformed> {
    if lines == b"\r\n" {
        return Ok(None);
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let Ok(httparse::Status::Complete((_, fields))) = httparse::parse_headers(lines, &mut fields) else {
        return Err(Malformed);
    };
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Malformed)?;
        trailers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| Malformed)?);
    }
    Ok(Some(trailers))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The data, the trailers, and the bytes after the body.
    type Body = (Vec<u8>, HeaderMap, Vec<u8>);

    /// Reads a body in parts of this length. Returns `None` if the body is incomplete.
    fn read(body: &[u8], part: usize) -> Result<Option<Body>, Malformed> {
        let (mut chunked, mut data) = (Chunked::new(), Vec::new());
        let mut parts = body.chunks(part);
        let mut input = Bytes::new();
        loop {
            match chunked.read(&mut input)? {
                Piece::Data(bytes) => data.extend(bytes),
                Piece::End(trailers) => {
                    let rest = [&input[..], &parts.collect::<Vec<_>>().concat()].concat();
                    return Ok(Some((data, trailers.unwrap_or_default(), rest)));
                }
                Piece::NeedInput => match parts.next() {
                    Some(part) => input = Bytes::copy_from_slice(part),
                    None => return Ok(None),
                },
            }
        }
    }

    fn data(body: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        Ok(read(body, body.len().max(1))?.map(|(data, _, _)| data))
    }

    #[test]
    fn chunks_are_joined_and_following_bytes_remain() {
        let body = b"3\r\nabc\r\n0A;x=\"y\"\r\n0123456789\r\n1 \t;y\r\nz\r\n000\r\nX-Sum: 7\r\nx-sum: 8\r\n\r\nnext";
        for part in 1..=body.len() {
            let (data, trailers, rest) = read(body, part).unwrap().unwrap();
            assert_eq!(data, b"abc0123456789z");
            assert_eq!(trailers.get_all("x-sum").iter().collect::<Vec<_>>(), ["7", "8"]);
            assert_eq!(rest, b"next");
        }
    }

    #[test]
    fn ambiguous_chunks_are_malformed() {
        for bad in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            " 1\r\n",
            ";x\r\n",
            "1\n",
            "1\r\r\n",
            "1;x\ny\r\n",
            "1 2\r\n",
            "1\r\nab\r\n",
            "1\r\na\n",
            "1\r\na\rb",
            "11111111111111111\r\n",
            "0\r\nno field\r\n\r\n",
            "0\r\na b: c\r\n\r\n",
            "0\r\n\n",
            "0\r\na: b\n\r\n",
            "0\r\na: b\r\n\n",
            "0\r\na: b\n\nGET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(data(bad.as_bytes()), Err(Malformed), "{bad:?}");
        }
    }

    /// Regression test: `5 \\r\\n` and `5;a=\\r\\n` were accepted (RFC 9112 section 7.1.1).
    #[test]
    fn chunk_extensions_follow_the_grammar() {
        let read = |line: &str| data(format!("5{line}\r\nhello\r\n0\r\n\r\n").as_bytes());
        for good in [
            "",
            ";a",
            " ;a",
            "\t ; a",
            ";a=b",
            "; a = b",
            ";a=b;c;d=e",
            ";a=\"\"",
            ";a=\"b c;=\t\"",
            ";a=\"\\\"\\\\\"",
            ";a=\"b\" ;c",
            ";a=\"\u{e9}\"",
            ";a=b ;c",
            ";a ;b",
            ";!#$%&'*+-.^_`|~=1",
        ] {
            assert_eq!(read(good), Ok(Some(b"hello".to_vec())), "{good:?}");
        }
        for bad in [
            " ",
            "\t",
            ";",
            "; ",
            ";;",
            ";a;",
            ";a=",
            ";a= ",
            ";a ",
            ";a=b ",
            ";a=\"b\" ",
            ";=b",
            ";a==b",
            ";a=b=c",
            ";a b",
            ";a=b c",
            ";a=\"b",
            ";a=\"b\\",
            ";a=\"b\"c",
            ";a=\"b\"\"c\"",
            ";a\"",
            ";\"a\"",
            ";a=\u{e9}",
            ";a,b",
            " a",
            ";a=\"\x01\"",
            ";a\0",
            ";a=\"b\n\"",
            ";a=\"\\\x7f\"",
        ] {
            assert_eq!(read(bad), Err(Malformed), "{bad:?}");
        }
    }

    /// Regression test: the decoder continued after an error, and found requests in the rest of the input.
    #[test]
    fn nothing_is_read_after_an_error() {
        let mut chunked = Chunked::new();
        let mut input = Bytes::from_static(b"-5\r\nhello\r\n0\r\n\r\n");
        for _ in 0..3 {
            assert!(chunked.read(&mut input).is_err() && !chunked.is_end());
        }
        assert_eq!(input, "5\r\nhello\r\n0\r\n\r\n");
    }

    #[test]
    fn extensions_and_trailers_are_bounded() {
        let extensions = |length: usize| data(format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(length - 1)).as_bytes());
        assert_eq!(extensions(16 * 1024), Ok(Some(b"a".to_vec())));
        assert_eq!(extensions(16 * 1024 + 1), Err(Malformed));
        let blanks = format!("1{};x\r\na\r\n0\r\n\r\n", " ".repeat(16 * 1024 + 1));
        assert_eq!(data(blanks.as_bytes()), Err(Malformed));
        let trailers = |length| data(format!("0\r\na: {}\r\n\r\n", "x".repeat(length)).as_bytes());
        assert_eq!(trailers(16 * 1024 - 8), Ok(Some(Vec::new())));
        assert_eq!(trailers(16 * 1024), Err(Malformed));
        let fields = |count| data(format!("0\r\n{}\r\n", "a: b\r\n".repeat(count)).as_bytes());
        assert_eq!(fields(100), Ok(Some(Vec::new())));
        assert_eq!(fields(101), Err(Malformed));
    }

    proptest! {
        #[test]
        fn result_does_not_depend_on_input_boundaries(
            body in proptest::collection::vec(prop_oneof![
                "[0-9a-f]{1,3}".prop_map(String::into_bytes), Just(b"\r\n".to_vec()), Just(b"0\r\n\r\n".to_vec()),
                Just(b";".to_vec()), Just(b"a: b\r\n".to_vec()), any::<Vec<u8>>(),
            ], 0..12),
            part in 1_usize..9,
        ) {
            let body = body.concat();
            prop_assert_eq!(read(&body, part), read(&body, body.len().max(1)));
        }
    }
}
