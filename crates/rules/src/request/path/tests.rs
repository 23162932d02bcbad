//! Tests of equal, different and ambiguous paths.

use percent_encoding::percent_decode_str;
use proptest::prelude::*;

use super::*;

fn both(path: &str, slash: EncodedSlash) -> Result<(String, String), PathError> {
    normalize(path, slash).map(|path| (path.normalized().to_owned(), path.matched().to_owned()))
}

fn forms(whole: &str, matched: &str) -> Result<(String, String), PathError> {
    Ok((whole.to_owned(), matched.to_owned()))
}

#[test]
fn equal_paths_have_one_normal_form() {
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
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/.well-known/x", "/.well-known/x"),
        ("/100%25", "/100%25"),
        ("/file%252etxt", "/file%252etxt"),
        ("/a...", "/a..."),
    ] {
        assert_eq!(both(path, EncodedSlash::Reject), forms(normal, normal), "{path}");
    }
}

#[test]
fn kept_slashes_are_forwarded_and_not_matched() {
    for (path, expected) in [
        ("//login", forms("//login", "/login")),
        ("/a//b///", forms("/a//b///", "/a/b/")),
        ("/a/.//b", forms("/a//b", "/a/b")),
        ("/a//x/../b", forms("/a//b", "/a/b")),
        ("/a;v=1//%62", forms("/a;v=1//b", "/a/b")),
        ("/", forms("/", "/")),
        ("/a//../b", Err(PathError::Empty)),
        ("//..", Err(PathError::Empty)),
        ("/../a//b", Err(PathError::Escape)),
    ] {
        let path_of = normalize_with(path, EncodedSlash::Decode, Slashes::Keep);
        let found = path_of.map(|path| (path.normalized().to_owned(), path.matched().to_owned()));
        assert_eq!(found, expected, "{path}");
    }
}

proptest! {
    /// So that a rule applies to a path whatever `slashes` is.
    #[test]
    fn kept_slashes_do_not_change_the_matched_path(path in "/[/.ab;%2F]{0,16}") {
        let matched = |slashes| normalize_with(&path, EncodedSlash::Keep, slashes).map(|path| path.matched().to_owned());
        let kept = matched(Slashes::Keep);
        prop_assert!(kept == Err(PathError::Empty) || kept == matched(Slashes::Merge), "{:?}", kept);
    }
}

#[test]
fn parameters_are_forwarded_and_not_matched() {
    for (path, whole, matched) in [
        ("/login;x=1", "/login;x=1", "/login"),
        ("/a;v=1/b", "/a;v=1/b", "/a/b"),
        ("/a;v=1/../b;w", "/b;w", "/b"),
        ("/;jsessionid=7", "/;jsessionid=7", "/"),
        ("/a//;x", "/a/;x", "/a/"),
        ("/login%3bx", "/login%3Bx", "/login"),
        ("/a;x=..", "/a;x=..", "/a"),
        ("/..a;x", "/..a;x", "/..a"),
        ("/a;x=%2e%2e/b", "/a;x=../b", "/a/b"),
    ] {
        assert_eq!(both(path, EncodedSlash::Reject), forms(whole, matched), "{path}");
    }
}

#[test]
fn matched_form_has_a_unique_encoding() {
    for (path, whole, matched) in [
        ("/items%3Aimport", "/items%3Aimport", "/items:import"),
        ("/items:import", "/items:import", "/items:import"),
        ("/%40me", "/%40me", "/@me"),
        ("/a\"b", "/a\"b", "/a%22b"),
        ("/a%22b", "/a%22b", "/a%22b"),
        ("/{x}", "/{x}", "/%7Bx%7D"),
        ("/a%2bb", "/a%2Bb", "/a+b"),
    ] {
        assert_eq!(both(path, EncodedSlash::Reject), forms(whole, matched), "{path}");
    }
}

#[test]
fn ambiguous_path_has_no_normal_form() {
    for (path, error) in [
        ("*", PathError::Relative),
        ("/%", PathError::Encoding),
        ("/%4", PathError::Encoding),
        ("/%zz", PathError::Encoding),
        ("/%00", PathError::Character),
        ("/%0d%0a", PathError::Character),
        ("/a\\b", PathError::Character),
        ("/%c0%af", PathError::Character),
        ("/%ff", PathError::Character),
        ("/caf\u{e9}", PathError::Character),
        ("/..", PathError::Escape),
        ("/a/../../b", PathError::Escape),
        ("/public/..;/login", PathError::Escape),
        ("/public/..;x=1/login", PathError::Escape),
        ("/public/..%3b/login", PathError::Escape),
        ("/public/.;/login", PathError::Escape),
        ("/public/%2e%2e;/login", PathError::Escape),
        ("/public/%252e%252e/login", PathError::Escape),
        ("/public/%25252e./login", PathError::Escape),
        ("/public/..%253b/login", PathError::Escape),
        ("/login%253bx", PathError::Twice),
        ("/login%2500", PathError::Twice),
        ("/a/;x=1/login", PathError::Nameless),
        ("/a/%3bx/login", PathError::Nameless),
    ] {
        for slash in [EncodedSlash::Reject, EncodedSlash::Keep, EncodedSlash::Decode] {
            assert_eq!(both(path, slash), Err(error), "{path} {slash:?}");
        }
    }
}

#[test]
fn encoded_slash_follows_the_rules() {
    let (slash, escape) = (Err(PathError::Slash), Err(PathError::Escape));
    for (path, reject, keep, decode) in [
        ("/api%2Flogin", slash.clone(), forms("/api%2Flogin", "/api%2Flogin"), forms("/api/login", "/api/login")),
        ("/a%5cb", slash.clone(), forms("/a%5Cb", "/a%5Cb"), forms("/a/b", "/a/b")),
        ("/a;x=%2fb", slash.clone(), forms("/a;x=%2Fb", "/a"), forms("/a;x=/b", "/a/b")),
        ("/a%2f..%2fb", slash.clone(), escape.clone(), forms("/b", "/b")),
        ("/a%2f%2fb", slash.clone(), forms("/a%2F%2Fb", "/a%2F%2Fb"), forms("/a/b", "/a/b")),
        ("/..%2fb", slash.clone(), escape.clone(), escape.clone()),
        ("/a/..%5cb", slash.clone(), escape.clone(), forms("/b", "/b")),
        ("/a;x=%2f../b", slash.clone(), escape.clone(), forms("/b", "/b")),
        ("/a%2f..;/b", slash.clone(), escape.clone(), escape.clone()),
        ("/a%252fb", slash.clone(), forms("/a%252fb", "/a%252fb"), forms("/a%252fb", "/a%252fb")),
        ("/a%252f..%252fb", escape.clone(), escape.clone(), escape),
        ("/a%2525%35cb", slash, forms("/a%25255cb", "/a%25255cb"), forms("/a%25255cb", "/a%25255cb")),
    ] {
        assert_eq!(both(path, EncodedSlash::Reject), reject, "{path}");
        assert_eq!(both(path, EncodedSlash::Keep), keep, "{path}");
        assert_eq!(both(path, EncodedSlash::Decode), decode, "{path}");
    }
}

/// Returns the segments that a lenient origin may read: it removes parameters before or after decoding, decodes once or
/// twice, merges slashes of all kinds, and resolves dot segments.
fn origin(path: &str, cuts_first: bool, decodes: usize) -> Vec<String> {
    let cut = |path: String| {
        let names = path.split('/').map(|part| part.split(';').next().unwrap_or_default().to_owned());
        names.collect::<Vec<_>>().join("/")
    };
    let mut path = if cuts_first { cut(path.to_owned()) } else { path.to_owned() };
    for _ in 0..decodes {
        path = decoded(&path).replace('\\', "/");
    }
    let mut segments = Vec::new();
    for part in cut(path).split('/') {
        match part {
            "" | "." => {}
            ".." => _ = segments.pop(),
            part => segments.push(part.to_owned()),
        }
    }
    segments
}

/// Decodes valid percent-encoding of ASCII, and keeps all else.
fn decoded(path: &str) -> String {
    percent_decode_str(path).map(char::from).collect()
}

fn slashes() -> impl Strategy<Value = EncodedSlash> {
    prop::sample::select(vec![EncodedSlash::Reject, EncodedSlash::Keep, EncodedSlash::Decode])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn normalization_is_idempotent(path in "/([ab./;:%]|%2[eEfF5]|%3[bBaA]|%5c|%25){0,12}", slash in slashes()) {
        if let Ok(normal) = normalize(&path, slash) {
            prop_assert_eq!(&normalize(normal.normalized(), slash), &Ok(normal.clone()));
            let matched = normalize(normal.matched(), slash);
            prop_assert_eq!(matched.as_ref().map(Path::matched), Ok(normal.matched()));
        }
    }

    #[test]
    fn matched_form_is_what_origins_serve(
        path in "/(login|a|[./;]|\\.\\.|%2[eEfF]|%3[bB]|%5[cC]|%6[cC]ogin|%252[efEF]|;x=1|%253b|%255c){0,8}",
        cuts_first: bool,
        decodes in 1..=2_usize,
    ) {
        if let Ok(normal) = normalize(&path, EncodedSlash::Reject) {
            let as_often = |part: &str| (0..decodes).fold(part.to_owned(), |part, _| decoded(&part));
            let matched: Vec<_> = normal.matched().split('/').filter(|part| !part.is_empty()).map(as_often).collect();
            prop_assert_eq!(&origin(&path, cuts_first, decodes), &matched, "{:?}", normal);
            prop_assert_eq!(origin(normal.normalized(), cuts_first, decodes), matched, "{:?}", normal);
        }
    }
}
