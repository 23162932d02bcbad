//! Responses in the shapes that the APIs send, in pieces that end anywhere.

mod reference;

use super::UsageReader;
use crate::{Api, Count, Format, Usage};

const EVENTS: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";

/// Reads a body of an API as [`read`] does. The reference finds the same, unless the body ends early.
fn read_api(api: Api, content_type: &str, body: &[u8]) -> (Option<Usage>, u64) {
    let found = read(&api.format(), content_type, body);
    let media_type = content_type.split(';').next().unwrap_or_default();
    let expected = reference::read(api, media_type, body);
    assert_eq!(expected.unwrap_or((None, found.1)), found, "{}", String::from_utf8_lossy(body));
    found
}

/// Reads a body whole, byte by byte, and in two pieces at each place. All give the same usage and the same text.
fn read(format: &Format, content_type: &str, body: &[u8]) -> (Option<Usage>, u64) {
    let read = |pieces: &[&[u8]]| {
        let mut reader = UsageReader::new(format, content_type.as_bytes());
        pieces.iter().for_each(|piece| reader.push(piece));
        reader.end();
        (reader.usage(), reader.text_bytes())
    };
    let whole = read(&[body]);
    assert_eq!(read(&body.chunks(1).collect::<Vec<_>>()), whole);
    for end in 0..body.len() {
        assert_eq!(read(&[&body[..end], &body[end..]]), whole, "split at {end}");
    }
    whole
}

fn usage_of(api: Api, content_type: &str, body: &str) -> Option<Usage> {
    read_api(api, content_type, body.as_bytes()).0
}

fn tokens(input: u64, cached_input: u64, cache_write: u64, output: u64) -> Option<Usage> {
    Some(Usage { input, cached_input, cache_write, output })
}

#[test]
fn every_format_has_its_pointers() {
    for api in Api::ALL.iter().copied() {
        let pointers = format!("{:?}", api.format().pointers());
        assert!(pointers.contains("Field"), "{api:?}: {pointers}");
    }
}

#[test]
fn openai_prompt_includes_cached_tokens() {
    let body = r#"{"id":"c","choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":9}"}}],"usage":{"prompt_tokens":30,
        "completion_tokens":12,"total_tokens":42,"prompt_tokens_details":{"cached_tokens":20,"audio_tokens":0},
        "completion_tokens_details":{"reasoning_tokens":8}}}"#;
    assert_eq!(usage_of(Api::OpenAi, JSON, body), tokens(10, 20, 0, 12));
}

#[test]
fn openai_embeddings_have_no_output() {
    let body = r#"{"data":[{"embedding":[0.1,-2e-3]}],"usage":{"prompt_tokens":8,"total_tokens":8}}"#;
    assert_eq!(usage_of(Api::OpenAi, JSON, body), tokens(8, 0, 0, 0));
}

#[test]
fn openai_stream_reports_usage_in_its_last_event() {
    let body = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"h\\u00e9llo\"}}],\"usage\":null}\r\n\r\n: comment\n\n\
        data: {\"choices\":[],\"usage\":\ndata: {\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}\n\n\
        data: [DONE]\n\n";
    assert_eq!(read_api(Api::OpenAi, EVENTS, body.as_bytes()), (tokens(5, 0, 0, 2), 9 + 6));
}

#[test]
fn stream_without_usage_has_none() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\ndata: [DONE]\n\n";
    assert_eq!(usage_of(Api::OpenAi, EVENTS, body), None);
}

#[test]
fn last_event_counts_without_its_blank_line() {
    let body = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}";
    assert_eq!(usage_of(Api::OpenAi, EVENTS, body), tokens(5, 0, 0, 2));
}

#[test]
fn groq_reports_usage_in_its_own_member() {
    let body =
        "data: {\"choices\":[{\"delta\":{}}],\"x_groq\":{\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":1}}}\n\n";
    assert_eq!(usage_of(Api::OpenAi, EVENTS, body), tokens(4, 0, 0, 1));
}

#[test]
fn openai_responses_report_usage_however_they_end() {
    for event in ["response.completed", "response.incomplete", "response.failed"] {
        let body = format!(
            "event: response.output_text.delta\ndata: {{\"delta\":\"hi\"}}\n\nevent: {event}\ndata: {{\"type\":\"{event}\",\
             \"response\":{{\"usage\":{{\"input_tokens\":9,\"input_tokens_details\":{{\"cached_tokens\":4}},\
             \"output_tokens\":3,\"total_tokens\":12}}}}}}\n\n"
        );
        assert_eq!(read_api(Api::OpenAiResponses, EVENTS, body.as_bytes()), (tokens(5, 4, 0, 3), 2));
    }
    let failed = "data: {\"type\":\"response.failed\",\"response\":{\"usage\":null}}\n\n";
    assert_eq!(usage_of(Api::OpenAiResponses, EVENTS, failed), None);
}

#[test]
fn anthropic_input_excludes_cache_tokens() {
    let body = r#"{"usage":{"input_tokens":10,"cache_creation_input_tokens":100,"cache_read_input_tokens":1000,
        "cache_creation":{"ephemeral_5m_input_tokens":100},"output_tokens":7}}"#;
    assert_eq!(usage_of(Api::Anthropic, JSON, body), tokens(10, 1_000, 100, 7));
}

#[test]
fn anthropic_stream_reports_cumulative_counts() {
    let body = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\
        \"cache_read_input_tokens\":50,\"output_tokens\":1}}}\n\n\
        event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"hello\"}}\n\n\
        event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n\
        event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"input_tokens\":10,\"output_tokens\":25}}\n\n";
    assert_eq!(read_api(Api::Anthropic, EVENTS, body.as_bytes()), (tokens(10, 50, 0, 25), 5));
}

#[test]
fn gemini_candidates_exclude_thoughts() {
    let usage = r#""usageMetadata":{"promptTokenCount":20,"cachedContentTokenCount":5,"candidatesTokenCount":7,
        "thoughtsTokenCount":30,"totalTokenCount":57}"#;
    let expected = tokens(15, 5, 0, 37);
    assert_eq!(usage_of(Api::Gemini, JSON, &format!("{{{usage}}}")), expected);
    let chunk = r#"{"candidates":[{"content":{"parts":[{"text":"abc"}]}}],"usageMetadata":{"promptTokenCount":20}}"#;
    let array = format!("[{chunk}\n,\r\n{{{usage}}}]");
    assert_eq!(read_api(Api::Gemini, JSON, array.as_bytes()), (expected, 3));
    let events = format!("data: {chunk}\n\ndata: {{{}}}\n\n", usage.replace('\n', ""));
    assert_eq!(read_api(Api::Gemini, EVENTS, events.as_bytes()), (expected, 3));
}

#[test]
fn total_above_its_parts_counts_as_output() {
    let body = r#"{"usageMetadata":{"promptTokenCount":20,"candidatesTokenCount":7,"totalTokenCount":30}}"#;
    assert_eq!(usage_of(Api::Gemini, JSON, body), tokens(20, 0, 0, 10));
}

/// A message of an event stream of AWS.
fn message(headers: &[u8], payload: &str) -> Vec<u8> {
    let total = u32::try_from(16 + headers.len() + payload.len()).expect("short");
    let lengths = [total, u32::try_from(headers.len()).expect("short"), 0].map(u32::to_be_bytes).concat();
    [&lengths, headers, payload.as_bytes(), &[0; 4]].concat()
}

#[test]
fn bedrock_stream_reports_usage_in_its_metadata() {
    let text = message(b"\x0b:event-type", r#"{"contentBlockIndex":0,"delta":{"text":"hello"},"p":"abcdef"}"#);
    let metadata = message(
        b"",
        r#"{"metrics":{"latencyMs":7},"usage":{"inputTokens":3,"outputTokens":4,"totalTokens":7,"cacheReadInputTokens":0}}"#,
    );
    let body = [text, message(b"", ""), metadata].concat();
    let content_type = "application/vnd.amazon.eventstream";
    assert_eq!(read_api(Api::Bedrock, content_type, &body), (tokens(3, 0, 0, 4), 5));
    let malformed = [vec![0; 12], body].concat();
    assert_eq!(read_api(Api::Bedrock, content_type, &malformed), (None, 0));
}

#[test]
fn custom_pointers_find_single_numbers() {
    let format = Format::custom([(Count::Input, "/meta/in"), (Count::Output, "/meta/out/0")]).expect("valid");
    assert_eq!(read(&format, JSON, br#"{"meta":{"in":1.5,"out":[6,7]}}"#).0, tokens(2, 0, 0, 6));
    let total = Format::custom([(Count::Total, "/cost")]).expect("valid");
    assert_eq!(read(&total, JSON, br#"{"cost":9}"#).0, tokens(0, 0, 0, 9));
}

#[test]
fn body_that_ends_early_has_no_usage() {
    let body = r#"{"usage":{"prompt_tokens":30,"completion_tokens":12"#;
    assert_eq!(usage_of(Api::OpenAi, JSON, body), None);
    let start = "data: {\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n";
    assert_eq!(usage_of(Api::Anthropic, EVENTS, start), None);
}
