//! Paths: one normal form, which is its own, in which nobody finds a way up or out.

use tidegate::internals::normalize_path;

/// Path normalisation.
pub fn path(data: &[u8]) {
    let Ok(path) = std::str::from_utf8(data) else { return };
    let Some(normal) = normalize_path(path) else { return };
    assert_eq!(normalize_path(&normal).as_ref(), Some(&normal), "no normal form: {path:?}");
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
    // Nobody who decodes it once finds more than was there: no dots, no backslash, no end of a line, no NUL.
    let decoded = decode(&normal);
    assert!(!decoded.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\'), "{normal:?}");
    let climbs = decoded.split(|byte| *byte == b'/').any(|segment| matches!(segment, b".."));
    assert!(!climbs, "leads up when it is decoded: {normal:?}");
    // It names what the path named.
    assert_eq!(resolved(path.as_bytes()), resolved(normal.as_bytes()), "another path: {path:?} {normal:?}");
}

/// The segments to which a path leads, decoded one by one.
fn resolved(path: &[u8]) -> Vec<Vec<u8>> {
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

/// Percent-decoded once; what is no encoding stays.
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
