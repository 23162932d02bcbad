//! Fuzzes the bodies of requests: what the gateway reads from an accepted body is what `serde_json` reads, so that a client
//! cannot send one bound to the gateway and another one to the upstream.

use std::sync::Arc;

use serde_json::Value;
use tidegate_usage::{Api, MemberPointers, MemberValue, Members, Pointer, Request};

/// The bound that is written into requests without one.
const BOUND: u64 = 77;

/// The first byte selects the API, and the rest is the body.
pub fn bodies(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let api = Api::ALL[usize::from(first.wrapping_sub(b'a')) % Api::ALL.len()];
    // Another parser rejects some accepted bodies, such as one with the number 1e999.
    let json = serde_json::from_slice::<Value>(body).ok();
    if let Ok(request) = Request::read(api, body) {
        if let Some(json) = &json {
            check_request(api, &request, json);
        }
        check_rewrite(api, &request, body, json.as_ref());
    }
    members(body, json.as_ref());
}

/// The places of a bound, of which the largest counts.
fn outputs(api: Api) -> &'static [&'static str] {
    match api {
        Api::OpenAi => &["/max_completion_tokens", "/max_tokens"],
        Api::OpenAiResponses => &["/max_output_tokens"],
        Api::Anthropic => &["/max_tokens"],
        Api::Gemini => &[
            "/generationConfig/maxOutputTokens",
            "/generationConfig/max_output_tokens",
            "/generation_config/maxOutputTokens",
            "/generation_config/max_output_tokens",
        ],
        Api::Bedrock => &["/inferenceConfig/maxTokens"],
    }
}

fn check_request(api: Api, request: &Request, json: &Value) {
    // Fractions are rounded up, and parsers differ in the last digit.
    let round_up = |bound: f64| format!("{:.0}", bound.ceil() + 0.0).parse::<u64>().ok();
    let bounds = outputs(api).iter().filter_map(|place| json.pointer(place)?.as_f64().and_then(round_up));
    let generates = api != Api::OpenAi || json.get("messages").or(json.get("prompt")).is_some();
    if !generates {
        assert_eq!(request.output, Some(0), "{json}");
    } else if let Some(bound) = bounds.max() {
        let read = request.output.unwrap_or_else(|| panic!("a bound of {bound} was not read: {json}"));
        assert!(read.abs_diff(bound) <= 1, "{read} and {bound}: {json}");
    } else {
        assert_eq!(request.output, None, "{json}");
    }
    let is_true = |place: &str| json.pointer(place) == Some(&Value::Bool(true));
    if has_stream(api) {
        assert_eq!(request.is_stream, is_true("/stream"), "{json}");
        let model = json.get("model").and_then(Value::as_str).filter(|model| model.len() <= 64);
        assert_eq!(request.model.as_deref(), model, "{json}");
    }
    assert_eq!(request.includes_usage, api == Api::OpenAi && is_true("/stream_options/include_usage"), "{json}");
    for name in ["n", "best_of"] {
        if let Some(count) = json.get(name).and_then(Value::as_u64).filter(|_| api == Api::OpenAi) {
            assert!(request.outputs >= count, "{} outputs: {json}", request.outputs);
        }
    }
    // Parsers that ignore case would read such a member.
    for key in json.as_object().into_iter().flat_map(serde_json::Map::keys) {
        for known in outputs(api).iter().filter_map(|place| place.split('/').nth(1)) {
            assert!(key == known || !key.eq_ignore_ascii_case(known), "{key}: {json}");
        }
    }
}

/// Only these APIs have the model and the stream in the body.
fn has_stream(api: Api) -> bool {
    matches!(api, Api::OpenAi | Api::OpenAiResponses | Api::Anthropic)
}

/// Checks that a changed body is valid, has the bound, and is otherwise the same request.
fn check_rewrite(api: Api, request: &Request, body: &[u8], json: Option<&Value>) {
    let Some(changed) = request.rewrite(api, body, Some(BOUND), true) else {
        assert!(request.output.is_some(), "no bound was written");
        return;
    };
    let again = Request::read(api, &changed).unwrap_or_else(|error| panic!("{error}: {:?}", text(&changed)));
    assert_eq!(again.output, request.output.or(Some(BOUND)), "{:?}", text(&changed));
    assert_eq!((again.outputs, again.hidden, &again.model), (request.outputs, request.hidden, &request.model));
    assert_eq!(again.is_stream, request.is_stream);
    assert_eq!(again.includes_usage, request.includes_usage || api == Api::OpenAi && request.is_stream);
    assert!(again.rewrite(api, &changed, Some(BOUND), true).is_none(), "changed twice: {:?}", text(&changed));
    if let Some(json) = json {
        let changed =
            serde_json::from_slice::<Value>(&changed).unwrap_or_else(|error| panic!("{error}: {:?}", text(&changed)));
        check_others(json, &changed);
    }
}

/// Checks that all other members are the same.
fn check_others(json: &Value, changed: &Value) {
    let (Some(before), Some(after)) = (json.as_object(), changed.as_object()) else { panic!("{changed}") };
    let is_written = |key: &str| {
        ["generationConfig", "generation_config", "inferenceConfig", "stream_options"].contains(&key)
            || key.starts_with("max_")
    };
    for (key, value) in before.iter().filter(|(key, _)| !is_written(key)) {
        assert_eq!(after.get(key), Some(value), "{changed}");
    }
    let mut added = after.keys().filter(|key| !before.contains_key(*key));
    assert!(added.all(|key| is_written(key)), "{changed}");
}

const POINTERS: [&str; 4] = ["/model", "/params/name", "/n", "/method"];

fn members(body: &[u8], json: Option<&Value>) {
    let pointers = POINTERS.map(|text| Pointer::parse(text).unwrap_or_else(|error| panic!("{error}")));
    let all = Arc::new(MemberPointers::new(&pointers).unwrap_or_else(|error| panic!("{error}")));
    let (Ok(members), Some(json)) = (Members::read(&all, body), json) else { return };
    let calls = match json {
        Value::Array(calls) if !calls.is_empty() => &calls[..],
        _ => std::slice::from_ref(json),
    };
    assert_eq!(members.calls(), calls.len(), "{json}");
    for (number, call) in calls.iter().enumerate() {
        for pointer in &pointers {
            let expected = object_member(call, pointer.as_str());
            let found = members.value(number, pointer);
            assert!(is_equal(found, expected), "{pointer}: {found:?} and {expected:?}");
        }
    }
}

/// Returns a member of objects: pointers of `serde_json` lead to elements of arrays, too.
fn object_member<'v>(json: &'v Value, pointer: &str) -> Option<&'v Value> {
    pointer.split('/').skip(1).try_fold(json, |json, key| json.as_object()?.get(key))
}

fn is_equal(found: Option<&MemberValue>, expected: Option<&Value>) -> bool {
    match (found, expected) {
        (None, None) | (Some(MemberValue::Null), Some(Value::Null)) => true,
        (Some(MemberValue::Bool(found)), Some(Value::Bool(expected))) => found == expected,
        (Some(MemberValue::Number(found)), Some(Value::Number(expected))) => {
            let (found, expected) = (found.parse::<f64>().unwrap_or(f64::NAN), expected.as_f64().unwrap_or(f64::NAN));
            (found - expected).abs() <= expected.abs() * 1e-15
        }
        (Some(MemberValue::Text(found)), Some(Value::String(expected))) => **found == **expected,
        (Some(MemberValue::Long), Some(Value::String(expected))) => expected.len() > MemberValue::MAX_TEXT,
        (Some(MemberValue::Container), Some(Value::Array(_) | Value::Object(_))) => true,
        _ => false,
    }
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}
