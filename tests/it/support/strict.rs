//! A strict parser of HTTP/1.1, which accepts only unambiguous messages as RFC 9112 defines them for senders.
//!
//! Tests and the fuzzer check the gateway's output with it, so it shares no code with the gateway.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each user needs only some of the items")]

/// A complete message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The request line or status line.
    pub start: String,
    /// Names in lower case, and values.
    pub fields: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, Vec<u8>)>,
}

/// The result of parsing the start of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A message and its length in bytes.
    Complete(Message, usize),
    /// The start of a message, with its head if the head is complete.
    Incomplete(Option<Message>),
    /// Bytes that a sender must not write, and the reason.
    Invalid(String),
}

/// How the end of a body is found.
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// `None` if more bytes are needed.
type ParseResult<T> = Result<Option<T>, String>;

impl Message {
    /// Returns the values of a field.
    pub fn values(&self, name: &str) -> Vec<String> {
        let values = self.fields.iter().filter(|(other, _)| other == name);
        values.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
    }

    pub fn status(&self) -> u16 {
        self.start.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_default()
    }

    /// Returns `METHOD TARGET` of a request.
    pub fn method_and_target(&self) -> &str {
        self.start.strip_suffix(" HTTP/1.1").unwrap_or(&self.start)
    }
}

/// Parses a request at the start of `bytes`.
pub fn request(bytes: &[u8]) -> Parsed {
    parse(bytes, false, |start, message| {
        request_line(start)?;
        if message.values("host").len() != 1 {
            return Err(format!("{} hosts", message.values("host").len()));
        }
        Ok(framing(message)?.unwrap_or(Framing::Length(0)))
    })
}

/// Parses a response at the start of `bytes`. `head_only`: it answers a HEAD request; `closed`: no bytes will follow.
pub fn response(bytes: &[u8], head_only: bool, closed: bool) -> Parsed {
    parse(bytes, closed, |start, message| {
        status_line(start)?;
        let framing = framing(message)?;
        let is_bodiless = head_only || matches!(message.status(), 100..=199 | 204 | 304);
        Ok(if is_bodiless { Framing::Length(0) } else { framing.unwrap_or(Framing::UntilClose) })
    })
}

fn parse(bytes: &[u8], closed: bool, check_head: impl Fn(&str, &Message) -> Result<Framing, String>) -> Parsed {
    let mut message = Message::default();
    let body_at = match head(bytes, &mut message) {
        Ok(Some(at)) => at,
        Ok(None) => return Parsed::Incomplete(None),
        Err(reason) => return Parsed::Invalid(reason),
    };
    let framing = match check_head(&message.start.clone(), &message) {
        Ok(framing) => framing,
        Err(reason) => return Parsed::Invalid(reason),
    };
    let rest = &bytes[body_at..];
    let length = match framing {
        Framing::Length(length) if rest.len() < length => Ok(None),
        Framing::Length(length) => {
            message.body = rest[..length].to_vec();
            Ok(Some(length))
        }
        Framing::Chunked => chunks(rest, &mut message),
        Framing::UntilClose => {
            message.body = rest.to_vec();
            Ok(closed.then_some(rest.len()))
        }
    };
    match length {
        Ok(Some(length)) => Parsed::Complete(message, body_at + length),
        Ok(None) => Parsed::Incomplete(Some(message)),
        Err(reason) => Parsed::Invalid(reason),
    }
}

/// Returns a line without its CR LF, and the start of the next line.
fn line(bytes: &[u8], from: usize) -> ParseResult<(&[u8], usize)> {
    let rest = &bytes[from..];
    let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)) else { return Ok(None) };
    match &rest[end..] {
        [b'\r', b'\n', ..] => Ok(Some((&rest[..end], from + end + 2))),
        [b'\r'] => Ok(None),
        _ => Err(format!("a lone {:?} in {:?}", char::from(rest[end]), text(&rest[..rest.len().min(end + 20)]))),
    }
}

fn head(bytes: &[u8], message: &mut Message) -> ParseResult<usize> {
    let Some((start, at)) = line(bytes, 0)? else { return Ok(None) };
    message.start = text(start);
    fields(bytes, at, &mut message.fields)
}

/// Parses fields up to the empty line. Returns the position after the empty line.
fn fields(bytes: &[u8], mut at: usize, fields: &mut Vec<(String, Vec<u8>)>) -> ParseResult<usize> {
    loop {
        let Some((field, next)) = line(bytes, at)? else { return Ok(None) };
        at = next;
        if field.is_empty() {
            return Ok(Some(at));
        }
        let colon = field
            .iter()
            .position(|byte| *byte == b':')
            .ok_or_else(|| format!("a field without a colon: {:?}", text(field)))?;
        let (name, value) = (&field[..colon], &field[colon + 1..]);
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err(format!("an invalid field name: {:?}", text(name)));
        }
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if blank(value.first()) || blank(value.last()) || !value.iter().all(|byte| is_content(*byte)) {
            return Err(format!("an invalid field value: {:?}", text(value)));
        }
        fields.push((text(name).to_ascii_lowercase(), value.to_vec()));
    }
}

fn request_line(line: &str) -> Result<(), String> {
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else { return Err(format!("an invalid request line: {line:?}")) };
    let is_visible = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    let has_form = target.starts_with('/') || (target == "*" && method == "OPTIONS");
    let path = target.split('?').next().unwrap_or_default();
    let has_dots = path.split('/').any(|segment| matches!(segment, "." | ".."));
    if method.is_empty()
        || !method.bytes().all(is_token)
        || !is_visible
        || !has_form
        || has_dots
        || path.contains("//")
        || path.contains('\\')
    {
        return Err(format!("an invalid request line: {line:?}"));
    }
    Ok(())
}

fn status_line(line: &str) -> Result<(), String> {
    let bytes = line.as_bytes();
    let is_valid = line.starts_with("HTTP/1.1 ")
        && bytes.len() >= 13
        && bytes[9..12].iter().all(u8::is_ascii_digit)
        && matches!(bytes[9], b'1'..=b'9')
        && bytes[12] == b' '
        && bytes[13..].iter().all(|byte| is_content(*byte));
    is_valid.then_some(()).ok_or_else(|| format!("an invalid status line: {line:?}"))
}

/// Returns the framing that a head declares. A sender declares it at most once.
fn framing(message: &Message) -> Result<Option<Framing>, String> {
    let (lengths, codings) = (message.values("content-length"), message.values("transfer-encoding"));
    match (&lengths[..], &codings[..]) {
        ([], []) => Ok(None),
        ([length], []) if is_number(length) => {
            let length = length.parse().map_err(|_| format!("too long: {length}"))?;
            Ok(Some(Framing::Length(length)))
        }
        ([], [coding]) if coding == "chunked" => Ok(Some(Framing::Chunked)),
        _ => Err(format!("framed by lengths {lengths:?} and codings {codings:?}")),
    }
}

/// Returns `true` for digits without a leading zero.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'))
}

/// Parses chunks and trailers. Returns their length.
fn chunks(bytes: &[u8], message: &mut Message) -> ParseResult<usize> {
    let mut at = 0;
    loop {
        let Some((size, next)) = line(bytes, at)? else { return Ok(None) };
        let digits = text(size);
        if digits.is_empty() || digits.len() > 15 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("an invalid chunk size: {digits:?}"));
        }
        let size = usize::from_str_radix(&digits, 16).map_err(|_| format!("an invalid chunk size: {digits:?}"))?;
        if size == 0 {
            let end = fields(bytes, next, &mut message.trailers)?;
            let framing = ["content-length", "transfer-encoding", "host"];
            return match message.trailers.iter().find(|(name, _)| framing.contains(&name.as_str())) {
                Some((name, _)) => Err(format!("{name} in trailers")),
                None => Ok(end),
            };
        }
        let Some(data) = bytes.get(next..next.saturating_add(size)) else { return Ok(None) };
        message.body.extend_from_slice(data);
        at = next + size;
        match bytes.get(at..bytes.len().min(at + 2)) {
            Some(b"\r\n") => at += 2,
            Some(b"" | b"\r") => return Ok(None),
            _ => return Err("no CR LF after a chunk".to_owned()),
        }
    }
}

/// RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// RFC 9110 section 5.5.
fn is_content(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// Converts each byte to a character.
fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}
