//! Tests that no line makes a parser panic.

use proptest::prelude::*;

use super::LINES;
use crate::log::{FORMATS, LogFormat};

/// Calls all parsers. The result does not matter, but none may panic.
fn parse_with_all(line: &[u8]) {
    let mapped = LogFormat::parse_mapping("json:time=a,method=b,path=c.d,headers=e,header.*=f*").unwrap();
    let text = r#"text:$remote_addr [$time_local] "$request" $status "$http_user_agent""#;
    let text = LogFormat::parse_mapping(text).unwrap();
    FORMATS.iter().chain([&mapped, &text]).for_each(|format| _ = format.parse(line));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_with_all(&line);
    }

    #[test]
    fn arbitrary_words_do_not_panic(line in r#"([\[\]"\\{}:/,=#ux0-9GET -]|26/Nov/2026:07:10:35|é|\{"a":){0,60}"#) {
        parse_with_all(line.as_bytes());
    }

    #[test]
    fn damaged_lines_do_not_panic(
        line in prop::sample::select(&LINES[..]),
        at in any::<prop::sample::Index>(),
        removed in 0_usize..8,
        inserted in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut line = line.1.as_bytes().to_vec();
        let at = at.index(line.len());
        let end = (at + removed).min(line.len());
        line.splice(at..end, inserted);
        parse_with_all(&line);
    }

    #[test]
    fn mappings_do_not_panic(mapping in ".{0,60}") {
        _ = LogFormat::parse_mapping(&format!("json:{mapping}"));
    }

    #[test]
    fn text_formats_do_not_panic(
        format in r#"(\$(time|date|request|status|remote_addr|\{uri\}|x)|[ "\[\]\\té|]){0,12}"#,
        line in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let formats = [format!("text:{format}"), format!("text:$msec {format} $request")];
        formats.iter().filter_map(|format| LogFormat::parse_mapping(format).ok()).for_each(|format| _ = format.parse(&line));
    }
}
