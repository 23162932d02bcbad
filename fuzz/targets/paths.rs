//! Fuzzes path normalization.

use tidegate::internals::normalize_path;

/// Checks that normalization is idempotent and keeps the resource, and that no decoder finds `..` in a normal path.
pub fn path(data: &[u8]) {
    let Ok(path) = std::str::from_utf8(data) else { return };
    let Some(normal) = normalize_path(path) else { return };
    assert_eq!(normalize_path(&normal).as_ref(), Some(&normal), "normalization is not idempotent: {path:?}");
    assert!(
        normal.starts_with('/') && normal.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'),
        "{normal:?}"
    );
    let segments: Vec<&str> = normal[1..].split('/').collect();
    for (index, segment) in segments.iter().enumerate() {
        let is_last = index + 1 == segments.len();
        assert!(!segment.is_empty() || is_last, "an empty segment in {normal:?}");
        assert!(!matches!(*segment, "." | ".."), "dots in {normal:?}");
    }
    // Decoding the path once reveals no `..`, backslash, line end or NUL.
    let decoded = decode(&normal);
    assert!(!decoded.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\'), "{normal:?}");
    let climbs = decoded.split(|byte| *byte == b'/').any(|segment| matches!(segment, b".."));
    assert!(!climbs, "`..` after decoding: {normal:?}");
    assert_eq!(resolve(path.as_bytes()), resolve(normal.as_bytes()), "another resource: {path:?} {normal:?}");
}

/// Returns the decoded segments of a path, with dot segments resolved.
fn resolve(path: &[u8]) -> Vec<Vec<u8>> {
    let mut segments = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        let segment = decode(&String::from_utf8_lossy(segment));
        match &segment[..] {
            b"" | b"." => {}
            b".." => _ = segments.pop(),
            _ => segments.push(segment),
        }
    }
    segments
}

/// Decodes percent-encodings once, and keeps invalid ones.
fn decode(text: &str) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::new(), text.as_bytes());
    while let [byte, tail @ ..] = rest {
        let hex = match tail {
            [high, low, ..] if *byte == b'%' => {
                std::str::from_utf8(&[*high, *low]).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok())
            }
            _ => None,
        };
        decoded.push(hex.unwrap_or(*byte));
        rest = if hex.is_some() { &tail[2..] } else { tail };
    }
    decoded
}
