//! The normal form of a path (RFC 3986 section 6.2.2), and the paths that have none.
//!
//! `/a//b`, `/a/./b`, `/a/x/../b` and `/%61/b` are all `/a/b`. Percent-encoded bytes that are not unreserved stay
//! encoded, with upper-case digits: `%2f` is data within a segment, never a separator. Where servers disagree about
//! what a path means (`..%2f`, a backslash, an encoded NUL, bytes that are no UTF-8), there is no normal form.

use std::borrow::Cow;

/// Why a path has no normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// `*`, or anything else that does not start with a slash.
    #[error("does not start with /")]
    Relative,
    /// A percent sign without two hexadecimal digits.
    #[error("broken percent-encoding")]
    Encoding,
    /// An encoded NUL or another control character, a backslash, bytes that are no UTF-8 (RFC 3629).
    #[error("ambiguous character")]
    Character,
    /// `..` above the root, or hidden beside an encoded slash.
    #[error("leaves its root")]
    Escape,
}

/// The normal form of `path`; borrowed where it is in that form already.
///
/// # Errors
/// See [`PathError`].
pub fn normalize(path: &str) -> Result<Cow<'_, str>, PathError> {
    if !path.starts_with('/') {
        return Err(PathError::Relative);
    }
    if is_plain(path.as_bytes()) {
        return Ok(Cow::Borrowed(path));
    }
    let decoded = decode_unreserved(path)?;
    remove_dot_segments(&decoded).map(Cow::Owned)
}

/// No percent sign, no empty segment, no segment that starts with a dot, nothing outside visible ASCII.
fn is_plain(path: &[u8]) -> bool {
    let visible = path.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'\\'));
    visible && !path.windows(2).any(|pair| pair[0] == b'/' && matches!(pair[1], b'/' | b'.'))
}

/// Decodes what needs no encoding and writes the rest in one way.
fn decode_unreserved(path: &str) -> Result<String, PathError> {
    let mut normal = String::with_capacity(path.len());
    let mut raw = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let encoded = byte == b'%';
        let byte = if encoded {
            let (digits, tail) = tail.split_at_checked(2).ok_or(PathError::Encoding)?;
            rest = tail;
            hex(digits[0])? << 4 | hex(digits[1])?
        } else {
            byte
        };
        if byte.is_ascii_control() || byte == b'\\' {
            return Err(PathError::Character);
        }
        raw.push(byte);
        if is_unreserved(byte) || (!encoded && byte.is_ascii_graphic()) {
            normal.push(char::from(byte));
        } else {
            normal.push('%');
            normal.push(char::from(b"0123456789ABCDEF"[usize::from(byte >> 4)]));
            normal.push(char::from(b"0123456789ABCDEF"[usize::from(byte & 15)]));
        }
    }
    std::str::from_utf8(&raw).map_err(|_| PathError::Character)?;
    Ok(normal)
}

fn remove_dot_segments(path: &str) -> Result<String, PathError> {
    let mut segments: Vec<&str> = Vec::new();
    let mut directory = false;
    for segment in path[1..].split('/') {
        directory = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop().ok_or(PathError::Escape)?,
            _ if segment.split("%2F").any(|part| part == "..") && segment.contains("%2F") => {
                return Err(PathError::Escape);
            }
            _ => segments.push(segment),
        }
    }
    let mut normal = String::with_capacity(path.len());
    for segment in &segments {
        normal.push('/');
        normal.push_str(segment);
    }
    if directory || segments.is_empty() {
        normal.push('/');
    }
    Ok(normal)
}

fn hex(digit: u8) -> Result<u8, PathError> {
    let value = char::from(digit).to_digit(16).ok_or(PathError::Encoding)?;
    u8::try_from(value).map_err(|_| PathError::Encoding)
}

/// RFC 3986 section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_has_one_normal_form() {
        for (path, normal) in [
            ("/", "/"),
            ("/login", "/login"),
            ("/login/", "/login/"),
            ("//login", "/login"),
            ("/./login", "/login"),
            ("/a/../login", "/login"),
            ("/a/%2e%2e/login", "/login"),
            ("/%6Cogin", "/login"),
            ("/a/..", "/"),
            ("/a/b/.", "/a/b/"),
            ("/a%2fb", "/a%2Fb"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a;v=1/b", "/a;v=1/b"),
        ] {
            assert_eq!(normalize(path).as_deref(), Ok(normal), "{path}");
        }
    }

    #[test]
    fn a_path_that_servers_read_differently_has_none() {
        for (path, error) in [
            ("*", PathError::Relative),
            ("/%", PathError::Encoding),
            ("/%4", PathError::Encoding),
            ("/%zz", PathError::Encoding),
            ("/%00", PathError::Character),
            ("/%0d%0a", PathError::Character),
            ("/a\\b", PathError::Character),
            ("/a%5Cb", PathError::Character),
            ("/%c0%af", PathError::Character),
            ("/%ff", PathError::Character),
            ("/..", PathError::Escape),
            ("/a/../../b", PathError::Escape),
            ("/a/..%2fb", PathError::Escape),
            ("/a%2f..%2fb", PathError::Escape),
        ] {
            assert_eq!(normalize(path), Err(error), "{path}");
        }
    }

    #[test]
    fn a_normal_form_is_its_own_normal_form() {
        proptest::proptest!(|(path in "/[a-c./%25eE2fF]{0,12}")| {
            if let Ok(normal) = normalize(&path) {
                proptest::prop_assert_eq!(normalize(&normal), Ok(normal.clone()));
            }
        });
    }
}
