//! Fuzzes the responses of language models: the usage depends on no split, and is what a reader of whole bodies finds.

use tidegate_usage::{Api, UsageEventFilter, UsageReader};

use super::reference::{self, EVENT_STREAM, EVENTS};

const MEDIA_TYPES: [&str; 3] = ["application/json", EVENTS, EVENT_STREAM];

/// The first byte selects the API and the media type, the next two are the places of splits, and the rest is the body.
pub fn usage(data: &[u8]) {
    let [kind, first, second, body @ ..] = data else { return };
    let kind = usize::from(kind.wrapping_sub(b'a'));
    let (api, media_type) = (Api::ALL[kind % Api::ALL.len()], MEDIA_TYPES[kind / Api::ALL.len() % MEDIA_TYPES.len()]);
    let split = Split::new(body, [*first, *second]);
    let found = read(api, media_type, [body]);
    assert_eq!(read(api, media_type, split.0), found, "depends on the split");
    assert_eq!(read(api, media_type, body.chunks(1)), found, "depends on the split");
    let expected = reference::read(api, media_type, body);
    if let Some(expected) = expected {
        assert_eq!(found, expected, "{api:?}, {media_type}: {:?}", String::from_utf8_lossy(body));
    }
    if media_type == EVENTS {
        let filtered = filter([body]);
        assert_eq!(filter(split.0), filtered, "depends on the split");
        assert_eq!(filter(body.chunks(1)), filtered, "depends on the split");
        check_filtered(body, &filtered, expected.is_some());
    }
}

/// A body in three pieces.
struct Split<'b>([&'b [u8]; 3]);

impl<'b> Split<'b> {
    fn new(body: &'b [u8], places: [u8; 2]) -> Self {
        let [first, second] = places.map(|place| usize::from(place) * (body.len() + 1) / 256);
        let (first, second) = (first.min(second), first.max(second));
        Self([&body[..first], &body[first..second], &body[second..]])
    }
}

fn read<'b>(
    api: Api,
    media_type: &str,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> (Option<tidegate_usage::Usage>, u64) {
    let mut reader = UsageReader::new(&api.format(), media_type.as_bytes());
    for piece in pieces {
        reader.push(piece);
    }
    reader.end();
    (reader.usage(), reader.text_bytes())
}

fn filter<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Vec<u8> {
    let (mut filter, mut out) = (UsageEventFilter::default(), Vec::new());
    for piece in pieces {
        filter.push(piece, &mut out);
    }
    filter.end(&mut out);
    out
}

/// Checks that the filter removes whole events, and none with text.
fn check_filtered(body: &[u8], filtered: &[u8], is_json: bool) {
    let mut rest = body.iter();
    assert!(filtered.iter().all(|byte| rest.any(|other| other == byte)), "the filter adds bytes");
    if is_json {
        let text = |body| reference::read(Api::OpenAi, EVENTS, body).map(|(_, text)| text);
        assert_eq!(text(filtered), text(body), "{:?}", String::from_utf8_lossy(body));
    }
}
