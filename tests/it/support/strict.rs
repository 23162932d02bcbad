//! A second reader of HTTP/1.1: takes what RFC 9112 lets a sender write in the one way that nobody reads differently,
//! and nothing else.
//!
//! It shares no code with the gateway, since it is what the gateway's output is held to; the fuzzer reads with it, too.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each user takes what it needs")]

/// A message that was read to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The request line or status line.
    pub start: String,
    /// In lower case, with their values.
    pub fields: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, Vec<u8>)>,
}

/// What the front of some bytes is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Front {
    /// A message of so many bytes.
    Whole(Message, usize),
    /// The beginning of one; with its head, if all of that is there.
    Part(Option<Message>),
    /// Nothing that a sender may write, and why.
    Wrong(String),
}

/// Where a body ends.
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

type Reading<T> = Result<Option<T>, String>;

impl Message {
    /// The values of a field.
    pub fn values(&self, name: &str) -> Vec<String> {
        let values = self.fields.iter().filter(|(other, _)| other == name);
        values.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
    }

    pub fn status(&self) -> u16 {
        self.start.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_default()
    }

    /// `METHOD TARGET` of a request.
    pub fn asked(&self) -> &str {
        self.start.strip_suffix(" HTTP/1.1").unwrap_or(&self.start)
    }
}

/// Reads a request from the front of `bytes`.
pub fn request(bytes: &[u8]) -> Front {
    front(bytes, false, |start, message| {
        request_line(start)?;
        if message.values("host").len() != 1 {
            return Err(format!("{} hosts", message.values("host").len()));
        }
        Ok(told(message)?.unwrap_or(Framing::Length(0)))
    })
}

/// Reads an answer from the front of `bytes`: to a HEAD, or of a connection whose end they are.
pub fn answer(bytes: &[u8], head_only: bool, closed: bool) -> Front {
    front(bytes, closed, |start, message| {
        status_line(start)?;
        let told = told(message)?;
        let bodiless = head_only || matches!(message.status(), 100..=199 | 204 | 304);
        Ok(if bodiless { Framing::Length(0) } else { told.unwrap_or(Framing::UntilClose) })
    })
}

fn front(bytes: &[u8], closed: bool, judge: impl Fn(&str, &Message) -> Result<Framing, String>) -> Front {
    let mut message = Message::default();
    let body_at = match head(bytes, &mut message) {
        Ok(Some(at)) => at,
        Ok(None) => return Front::Part(None),
        Err(wrong) => return Front::Wrong(wrong),
    };
    let framing = match judge(&message.start.clone(), &message) {
        Ok(framing) => framing,
        Err(wrong) => return Front::Wrong(wrong),
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
        Ok(Some(length)) => Front::Whole(message, body_at + length),
        Ok(None) => Front::Part(Some(message)),
        Err(wrong) => Front::Wrong(wrong),
    }
}

/// A line without its CR LF, and where the next begins.
fn line(bytes: &[u8], from: usize) -> Reading<(&[u8], usize)> {
    let rest = &bytes[from..];
    let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)) else { return Ok(None) };
    match &rest[end..] {
        [b'\r', b'\n', ..] => Ok(Some((&rest[..end], from + end + 2))),
        [b'\r'] => Ok(None),
        _ => Err(format!("a lone {:?} in {:?}", char::from(rest[end]), text(&rest[..rest.len().min(end + 20)]))),
    }
}

fn head(bytes: &[u8], message: &mut Message) -> Reading<usize> {
    let Some((start, at)) = line(bytes, 0)? else { return Ok(None) };
    message.start = text(start);
    fields(bytes, at, &mut message.fields)
}

/// Reads fields up to the empty line; returns where that ends.
fn fields(bytes: &[u8], mut at: usize, fields: &mut Vec<(String, Vec<u8>)>) -> Reading<usize> {
    loop {
        let Some((field, next)) = line(bytes, at)? else { return Ok(None) };
        at = next;
        if field.is_empty() {
            return Ok(Some(at));
        }
        let colon =
            field.iter().position(|byte| *byte == b':').ok_or_else(|| format!("no field: {:?}", text(field)))?;
        let (name, value) = (&field[..colon], &field[colon + 1..]);
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err(format!("no name: {:?}", text(name)));
        }
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if blank(value.first()) || blank(value.last()) || !value.iter().all(|byte| is_content(*byte)) {
            return Err(format!("no value: {:?}", text(value)));
        }
        fields.push((text(name).to_ascii_lowercase(), value.to_vec()));
    }
}

fn request_line(line: &str) -> Result<(), String> {
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else { return Err(format!("no request line: {line:?}")) };
    let visible = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    let form = target.starts_with('/') || (target == "*" && method == "OPTIONS");
    let path = target.split('?').next().unwrap_or_default();
    let climbs = path.split('/').any(|segment| matches!(segment, "." | ".."));
    if method.is_empty()
        || !method.bytes().all(is_token)
        || !visible
        || !form
        || climbs
        || path.contains("//")
        || path.contains('\\')
    {
        return Err(format!("no request line: {line:?}"));
    }
    Ok(())
}

fn status_line(line: &str) -> Result<(), String> {
    let bytes = line.as_bytes();
    let good = line.starts_with("HTTP/1.1 ")
        && bytes.len() >= 13
        && bytes[9..12].iter().all(u8::is_ascii_digit)
        && matches!(bytes[9], b'1'..=b'9')
        && bytes[12] == b' '
        && bytes[13..].iter().all(|byte| is_content(*byte));
    good.then_some(()).ok_or_else(|| format!("no status line: {line:?}"))
}

/// What a head says about its body; a sender says it once, and in one way.
fn told(message: &Message) -> Result<Option<Framing>, String> {
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

/// Digits, and no zero before others.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'))
}

/// Reads chunks and trailers; returns their length.
fn chunks(bytes: &[u8], message: &mut Message) -> Reading<usize> {
    let mut at = 0;
    loop {
        let Some((size, next)) = line(bytes, at)? else { return Ok(None) };
        let digits = text(size);
        if digits.is_empty() || digits.len() > 15 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("no chunk size: {digits:?}"));
        }
        let size = usize::from_str_radix(&digits, 16).map_err(|_| format!("no chunk size: {digits:?}"))?;
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
            _ => return Err("a chunk does not end where it said".to_owned()),
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

/// One character for each byte.
fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}
