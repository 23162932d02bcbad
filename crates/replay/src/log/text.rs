//! Reads the parts of a text line: words, bracketed and quoted texts, and addresses.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use memchr::{memchr, memchr2};

use tidegate_limit::text::hex;

/// The unread rest of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scanner<'l>(&'l str);

impl<'l> Scanner<'l> {
    pub(super) fn new(line: &'l str) -> Self {
        Self(line)
    }

    /// Returns the unread rest of the line.
    pub(super) fn rest(&self) -> &'l str {
        self.0
    }

    /// Reads a word that ends before a space.
    pub(super) fn word(&mut self) -> Option<&'l str> {
        let text = self.0.trim_ascii_start();
        let (word, rest) = text.split_at(memchr(b' ', text.as_bytes()).unwrap_or(text.len()));
        self.0 = rest;
        Some(word).filter(|word| !word.is_empty())
    }

    /// Reads a text between square brackets.
    pub(super) fn bracketed(&mut self) -> Option<&'l str> {
        let (text, rest) = split_once(self.0.trim_ascii_start().strip_prefix('[')?, b']')?;
        self.0 = rest;
        Some(text)
    }

    /// Reads a text between double quotes, and resolves its escapes.
    pub(super) fn quoted(&mut self) -> Option<Cow<'l, str>> {
        let text = self.0.trim_ascii_start().strip_prefix('"')?;
        let (mut end, mut has_escapes) = (0, false);
        loop {
            end += memchr2(b'"', b'\\', text.as_bytes().get(end..)?)?;
            if text.as_bytes()[end] == b'"' {
                break;
            }
            has_escapes = true;
            end += 2;
        }
        self.0 = &text[end + 1..];
        let text = &text[..end];
        Some(if has_escapes { unescape(text, '\\').into() } else { text.into() })
    }

    /// Reads a quoted text. Returns `None` if it is `-` or empty.
    pub(super) fn quoted_value(&mut self) -> Option<Cow<'l, str>> {
        self.quoted().and_then(present)
    }

    /// Skips a number, or `-` for an absent number.
    pub(super) fn number(&mut self) -> Option<()> {
        let word = self.word()?;
        (word == "-" || word.parse::<u64>().is_ok()).then_some(())
    }
}

/// Splits a text at the first occurrence of an ASCII character. Faster than the method of `str`.
pub(super) fn split_once(text: &str, separator: u8) -> Option<(&str, &str)> {
    let at = memchr(separator, text.as_bytes())?;
    Some((&text[..at], &text[at + 1..]))
}

/// Returns `true` if a limit of Tidegate rejected the request.
pub(super) fn is_limited(limits: &str) -> bool {
    limits == "limited"
}

/// Returns `None` for the values of absent fields.
pub(super) fn present<'l>(value: impl Into<Cow<'l, str>>) -> Option<Cow<'l, str>> {
    Some(value.into()).filter(|value| !value.is_empty() && value != "-")
}

/// Resolves the escapes of nginx, Apache, Rust and HAProxy, which begin with `mark`. Other escapes remain.
pub(super) fn unescape(text: &str, mark: char) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split(mark);
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    while let Some(part) = parts.next() {
        let mut chars = part.chars();
        let hex = |at: usize| hex::byte(*part.as_bytes().get(at..)?.first_chunk()?);
        let byte = match (mark, chars.next()) {
            ('#', _) => hex(0).map(|byte| (byte, 2)),
            (_, Some('x')) => hex(1).map(|byte| (byte, 3)),
            (_, Some(quote @ ('"' | '\''))) => Some((u8::try_from(quote).unwrap_or(b'"'), 1)),
            (_, Some('n')) => Some((b'\n', 1)),
            (_, Some('r')) => Some((b'\r', 1)),
            (_, Some('t')) => Some((b'\t', 1)),
            _ => None,
        };
        let unicode = || {
            let (digits, rest) = part.strip_prefix("u{")?.split_once('}')?;
            Some((char::from_u32(u32::from_str_radix(digits, 16).ok()?)?, rest))
        };
        if let Some((byte, length)) = byte {
            bytes.push(byte);
            bytes.extend_from_slice(&part.as_bytes()[length..]);
        } else if mark == '\\' && part.is_empty() {
            // An escaped backslash: the next part follows the second backslash, so it does not begin with an escape.
            bytes.push(b'\\');
            bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
        } else if let Some((c, rest)) = unicode().filter(|_| mark == '\\') {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            bytes.extend_from_slice(rest.as_bytes());
        } else {
            bytes.extend_from_slice(mark.encode_utf8(&mut [0; 4]).as_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Parses an address, with or without brackets, zone and port. IPv4-mapped addresses become IPv4.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(address.into());
    }
    let address = match text.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next(),
        None => text.split_once(':').filter(|(_, port)| !port.contains(':')).map(|(address, _)| address),
    };
    let address = address.unwrap_or(text).split('%').next()?;
    Some(address.parse::<IpAddr>().ok()?.to_canonical())
}

/// Parses an address that has a port, also without brackets around an IPv6 address.
pub(super) fn address_with_port(text: &str) -> Option<IpAddr> {
    address(text.rsplit_once(':')?.0)
}

/// Parses the last address of a list, which the last proxy added.
pub(super) fn last_address(list: &str) -> Option<IpAddr> {
    address(list.rsplit(',').next()?.trim())
}

/// Parses a status. Returns `None` for the numbers that mean that no response was sent.
pub(super) fn status(text: &str) -> Option<u16> {
    text.parse().ok().filter(|status| *status >= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_line_are_read() {
        let mut scanner = Scanner::new(r#"a  b [c d] "e \"f\" \\x41" "-" "" 12 - x"#);
        assert_eq!((scanner.word(), scanner.word(), scanner.bracketed()), (Some("a"), Some("b"), Some("c d")));
        assert_eq!(scanner.quoted().as_deref(), Some(r#"e "f" \x41"#));
        assert_eq!((scanner.quoted_value(), scanner.quoted_value()), (None, None));
        assert_eq!((scanner.number(), scanner.number(), scanner.number()), (Some(()), Some(()), None));
        assert_eq!((scanner.word(), scanner.quoted(), scanner.bracketed()), (None, None, None));
        for open in ["\"a", "\"a\\", "\"a\\\"", "a\""] {
            assert_eq!(Scanner::new(open).quoted(), None, "{open}");
        }
    }

    #[test]
    fn escapes_are_resolved() {
        for (text, mark, expected) in [
            (r"a\x22b\x5Cc", '\\', "a\"b\\c"),
            (r"\xC3\xA4", '\\', "ä"),
            (r"\xFF", '\\', "\u{fffd}"),
            (r"\x4\xzz\x+1\q\u{zz}\u{1f600", '\\', r"\x4\xzz\x+1\q\u{zz}\u{1f600"),
            (r"\u{1f600}\t\'\n\r", '\\', "\u{1f600}\t'\n\r"),
            (r"\\x22\\\x22", '\\', "\\x22\\\""),
            (r"\ä\", '\\', r"\ä\"),
            ("a#22b#", '#', "a\"b#"),
        ] {
            assert_eq!(unescape(text, mark), expected, "{text}");
        }
    }

    #[test]
    fn addresses_are_parsed() {
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:8080", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
        ] {
            assert_eq!(address(text), Some(expected.parse().unwrap()), "{text}");
        }
        for text in ["", "-", "unix:", "localhost", "192.0.2", "[", "::1:::", "10.0.0.1 "] {
            assert_eq!(address(text), None, "{text}");
        }
        assert_eq!(address_with_port("2001:db8::1:33317"), Some("2001:db8::1".parse().unwrap()));
        assert_eq!(address_with_port("10.0.0.1:80"), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(last_address("192.0.2.1, 10.0.0.1"), Some("10.0.0.1".parse().unwrap()));
    }
}
