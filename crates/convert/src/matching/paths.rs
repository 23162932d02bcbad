//! Literal paths, in the normal form of the rule file.

use std::fmt::Write as _;

/// Returns the pattern of a path and all paths below it, such as `/a/**`. Returns `None` if no path can have the prefix.
pub(crate) fn below(prefix: &str) -> Option<String> {
    let path = exact(prefix)?;
    Some(if path == "/" { "/**".to_owned() } else { format!("{path}/**") })
}

/// Returns a path without the slash at its end, which makes no difference in the rule file. Returns `None` if the text is
/// no path, or has a character that only patterns have.
pub(crate) fn exact(path: &str) -> Option<String> {
    let inner = path.strip_prefix('/')?;
    let mut normal = String::new();
    for part in inner.split('/').filter(|part| !part.is_empty()) {
        normal.push('/');
        normal.push_str(&segment(part)?);
    }
    Some(if normal.is_empty() { "/".to_owned() } else { normal })
}

/// Returns a segment of a path in its normal form: only characters that need it are percent-encoded.
pub(super) fn segment(text: &str) -> Option<String> {
    if matches!(text, "." | "..") || text.contains(['*', '{', '}', ';', '\\', '?', '#']) {
        return None;
    }
    let mut normal = String::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let mut decoded = byte;
        if byte == b'%' {
            let (digits, tail) = rest.split_at_checked(2)?;
            decoded = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            rest = tail;
        }
        if decoded < b' ' || decoded == 0x7f || matches!(decoded, b'/' | b'\\') {
            return None;
        }
        match is_allowed(decoded) {
            true => normal.push(char::from(decoded)),
            false => _ = write!(normal, "%{decoded:02X}"),
        }
    }
    // An encoded star would become a pattern.
    (!normal.contains('*')).then_some(normal)
}

/// Returns `true` for characters that a segment has without percent-encoding.
pub(super) fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_paths_have_a_normal_form() {
        for (path, expected) in [
            ("/", Some("/")),
            ("/api/", Some("/api")),
            ("//a//b", Some("/a/b")),
            ("/a b", Some("/a%20b")),
            ("/%7Euser/%c3%a9", Some("/~user/%C3%A9")),
            ("/caf\u{e9}", Some("/caf%C3%A9")),
            ("api", None),
            ("/a/../b", None),
            ("/a*", None),
            ("/%2a", None),
            ("/{id}", None),
            ("/100%", None),
        ] {
            assert_eq!(exact(path).as_deref(), expected, "{path}");
        }
        assert_eq!(below("/").as_deref(), Some("/**"));
        assert_eq!(below("/api/").as_deref(), Some("/api/**"));
    }
}
