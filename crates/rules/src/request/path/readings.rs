//! The readings of a path that servers disagree about.
//!
//! A layer hands on paths as they came, so it cannot know how the service below reads them. It compares all readings
//! with its routes.

use percent_encoding::percent_decode_str;

use super::{EncodedSlash, Path, PathError, encoding, normalize, segment};

/// All paths that a server may read a path as, the preferred one first.
#[derive(Debug)]
pub struct Readings<'a> {
    pub paths: Vec<Path<'a>>,
    /// Why the path is rejected if its readings lead to different limits.
    pub fault: PathError,
}

/// Returns the readings of `path`; `None` if all servers read it as it is written.
pub fn readings(path: &str, slash: EncodedSlash) -> Option<Readings<'_>> {
    if path.starts_with('/') && super::is_plain(path.as_bytes()) {
        return None;
    }
    let decoded = decode(path);
    let unresolved = || Path::from(join(&decoded, false));
    Some(match normalize(path, slash) {
        // A router that does not resolve dot segments takes them for names.
        Ok(normal) if has_dots(&decoded) => Readings { paths: vec![normal, unresolved()], fault: PathError::Detour },
        Ok(normal) => Readings { paths: vec![normal], fault: PathError::Detour },
        Err(fault) => {
            let kept = normalize(path, EncodedSlash::Keep).ok();
            let lenient = [Path::from(join(&decoded, true)), unresolved(), Path::from(path)];
            Readings { paths: kept.into_iter().chain(lenient).collect(), fault }
        }
    })
}

/// Removes all layers of percent-encoding, and converts backslashes to slashes.
fn decode(path: &str) -> Vec<u8> {
    let once = segment::collapse_percent_layers(path);
    percent_decode_str(&once).map(|byte| if byte == b'\\' { b'/' } else { byte }).collect()
}

/// Returns the segments without their parameters.
fn segments(decoded: &[u8]) -> impl Iterator<Item = &[u8]> {
    let name = |segment: &'_ [u8]| segment.iter().position(|byte| *byte == b';').unwrap_or(segment.len());
    decoded.split(|byte| *byte == b'/').map(move |segment| &segment[..name(segment)])
}

fn has_dots(decoded: &[u8]) -> bool {
    segments(decoded).any(|segment| matches!(segment, b"." | b".."))
}

/// Joins the segments in the spelling of [`Path::matched`].
fn join(decoded: &[u8], resolves_dots: bool) -> String {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut ends_with_slash = false;
    for segment in segments(decoded) {
        ends_with_slash = true;
        match segment {
            b"" => {}
            b"." if resolves_dots => {}
            b".." if resolves_dots => _ = kept.pop(),
            segment => {
                kept.push(segment);
                ends_with_slash = false;
            }
        }
    }
    if ends_with_slash {
        kept.push(b"");
    }
    let mut path = String::with_capacity(decoded.len() + 1);
    for segment in kept {
        path.push('/');
        segment.iter().for_each(|byte| encoding::push(*byte, &mut path));
    }
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(path: &str, slash: EncodedSlash) -> Vec<String> {
        let readings = readings(path, slash).map(|readings| readings.paths).unwrap_or_default();
        readings.iter().map(|path| path.matched().to_owned()).collect()
    }

    proptest! {
        #[test]
        fn first_reading_is_the_normal_form(path in "/[/.%25aFcC;\\\\\u{e9}]{0,16}") {
            if let Some(found) = readings(&path, EncodedSlash::Reject) {
                prop_assert!(!found.paths.is_empty());
                if let Ok(normal) = normalize(&path, EncodedSlash::Reject) {
                    prop_assert_eq!(&found.paths[0], &normal);
                }
            }
        }
    }

    #[test]
    fn only_ambiguous_paths_have_several_readings() {
        let reject = |path| all(path, EncodedSlash::Reject);
        assert_eq!(reject("/a/b"), [""; 0]);
        assert_eq!(reject("//a/%62;v=1"), ["/a/b"]);
        assert_eq!(reject("/a/%2e%2E/b/"), ["/b/", "/a/../b/"]);
        assert_eq!(reject("/a%2fb"), ["/a%2Fb", "/a/b", "/a/b", "/a%2fb"]);
        assert_eq!(all("/a%2fb", EncodedSlash::Keep), ["/a%2Fb"]);
        assert_eq!(all("/a%2fb", EncodedSlash::Decode), ["/a/b"]);
        assert_eq!(reject("/x/..%2f..%5C..;q/login"), ["/login", "/x/../../../login", "/x/..%2f..%5C..;q/login"]);
        assert_eq!(reject("/a%252525252Fb%"), ["/a/b%25", "/a/b%25", "/a%252525252Fb%"]);
        assert_eq!(reject("*"), ["/*", "/*", "*"]);
    }
}
