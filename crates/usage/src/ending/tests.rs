//! Streams in the shapes of each API, which are ended after each of their events, in pieces that end anywhere.

use serde_json::Value;

use super::{EndableStream, MAX_EVENT, Progress, build};
use crate::{Api, Usage};

const CHAT: &str = "data: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\",\"choices\":[{\"index\":0,\
    \"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n\
    : comment\ndata: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\",\"choices\":[{\"index\":0,\
    \"delta\":{\"content\":\"h\\u00e9\"},\"finish_reason\":null}]}\n\n\
    data: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\",\"choices\":[{\"index\":0,\
    \"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n\
    data: [DONE]\n\n";

const MESSAGES: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg\",\"usage\":{\"input_tokens\":3}}}\n\n\
    event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
    event: ping\ndata: {\"type\":\"ping\"}\n\n\
    event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n\
    event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n\
    event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

const RESPONSE: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\
    \"created_at\":7,\"model\":\"m\",\"status\":\"in_progress\"}}\n\n\
    event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"item\":{\"name\":\"f\"}}\n\n\
    event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":2,\"delta\":\"hi\"}\n\n\
    event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":3,\"response\":{\"id\":\"resp_1\"}}\n\n";

const USAGE: Usage = Usage { input: 3, cached_input: 1, cache_write: 0, output: 5 };

/// Passes this many events of a stream, then ends it. Returns what the client has received, and the tokens of all events.
fn end_after<'a>(
    api: Api,
    removes_usage: bool,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    events: usize,
) -> (String, u64) {
    let mut stream = EndableStream::new(api, removes_usage).expect("an API with an end");
    let (mut out, mut passed, mut tokens) = (Vec::new(), 0, 0);
    for mut piece in pieces {
        while passed < events {
            let Progress::Complete(read) = stream.read(piece) else { break };
            tokens += stream.tokens();
            stream.pass(&mut out);
            piece = &piece[read..];
            passed += 1;
        }
    }
    if !stream.is_finished() {
        stream.end(&USAGE, &mut out);
    }
    (String::from_utf8(out).expect("text"), tokens)
}

/// Parses the events of a stream: the name and the data of each. All events are complete.
fn parse(text: &str) -> Vec<(String, Value)> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    assert!(text.is_empty() || text.ends_with("\n\n"), "{text}");
    let field =
        |event: &str, name: &str| event.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start().to_owned()));
    let read = |event: &str| {
        let data = field(event, "data:")?;
        let value = serde_json::from_str(&data).unwrap_or_else(|_| Value::from(data));
        Some((field(event, "event:").unwrap_or_default(), value))
    };
    text.split("\n\n").filter_map(read).collect()
}

/// Ends a stream after each of its events, in pieces that end anywhere, also with other ends of lines. Calls `check` with the
/// events that the client receives.
fn at_each_event(api: Api, stream: &str, check: impl Fn(usize, &[(String, Value)])) {
    for text in [stream.to_owned(), stream.replace('\n', "\r\n"), stream.replace('\n', "\r")] {
        for events in 0..=parse(stream).len() {
            let read = |pieces: &[&[u8]]| {
                let (text, tokens) = end_after(api, false, pieces.iter().copied(), events);
                (parse(&text), tokens)
            };
            let whole = read(&[text.as_bytes()]);
            check(events, &whole.0);
            assert_eq!(read(&text.as_bytes().chunks(1).collect::<Vec<_>>()), whole);
            for end in 0..text.len() {
                let (head, tail) = text.as_bytes().split_at(end);
                assert_eq!(read(&[head, tail]), whole, "split at {end}");
            }
        }
    }
}

#[test]
fn every_api_has_valid_places() {
    assert!(Api::ALL.iter().all(|api| build(*api).is_ok()));
    let endable = |api: &Api| EndableStream::new(*api, false).is_some() == api.has_endable_streams();
    assert!(Api::ALL.iter().all(endable));
}

#[test]
fn chat_ends_with_its_length_and_usage() {
    at_each_event(Api::OpenAi, CHAT, |events, received| {
        if events >= 3 {
            return assert_eq!(received.len(), events, "the output was complete");
        }
        assert_eq!(received.last().expect("an event").1, "[DONE]");
        let [length, usage] = [3, 2].map(|from_end| &received[received.len() - from_end].1);
        assert_eq!(length["choices"][0]["finish_reason"], "length");
        assert_eq!(length["object"], "chat.completion.chunk");
        assert_eq!(usage["usage"]["completion_tokens"], 5);
        assert_eq!(usage["usage"]["total_tokens"], 9);
        if events > 0 {
            assert_eq!((&length["id"], &length["created"], &length["model"]), (&"c-1".into(), &7.into(), &"m".into()));
        }
    });
}

#[test]
fn chat_has_no_usage_that_the_client_has_not_requested() {
    let (text, _) = end_after(Api::OpenAi, true, [CHAT.as_bytes()], 2);
    assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("usage"), "{text}");
    let (text, _) = end_after(Api::OpenAi, true, [CHAT.as_bytes()], 6);
    assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("usage"), "{text}");
}

#[test]
fn completions_end_in_their_own_shape() {
    let stream = "data: {\"id\":\"c\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":null}]}\n\n";
    let (text, tokens) = end_after(Api::OpenAi, true, [stream.as_bytes()], 1);
    let events = parse(&text);
    assert_eq!((events[1].1["choices"][0]["text"].as_str(), tokens), (Some(""), 1));
    assert_eq!(events[1].1["object"], "text_completion");
}

#[test]
fn messages_end_with_max_tokens() {
    at_each_event(Api::Anthropic, MESSAGES, |events, received| {
        let names: Vec<&str> = received.iter().map(|(name, _)| &**name).collect();
        if events >= 6 {
            return assert_eq!(received.len(), events, "the output was complete");
        }
        assert!(received.iter().all(|(name, data)| data["type"] == **name), "{received:?}");
        assert_eq!(names[names.len() - 2..], ["message_delta", "message_stop"]);
        let delta = &received[received.len() - 2].1;
        assert_eq!(delta["delta"]["stop_reason"], "max_tokens");
        assert_eq!(delta["usage"]["output_tokens"], 5);
        let count = |name| names.iter().filter(|other| **other == name).count();
        assert_eq!(count("content_block_start"), count("content_block_stop"));
        if let Some((_, stop)) = received.iter().find(|(name, _)| name == "content_block_stop") {
            assert_eq!(stop["index"], 1);
        }
    });
}

#[test]
fn responses_end_as_incomplete() {
    at_each_event(Api::OpenAiResponses, RESPONSE, |events, received| {
        let (name, last) = received.last().expect("an event");
        if events == 4 {
            return assert_eq!(name, "response.completed");
        }
        assert_eq!((name.as_str(), &last["type"]), ("response.incomplete", &"response.incomplete".into()));
        assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
        assert_eq!(last["response"]["usage"]["total_tokens"], 9);
        assert_eq!(last["sequence_number"], events);
        if events > 0 {
            assert_eq!(last["response"]["id"], "resp_1");
        }
    });
}

/// The text of an event is counted in bytes, before it passes.
#[test]
fn text_is_counted_in_bytes() {
    assert_eq!(end_after(Api::OpenAi, false, [CHAT.as_bytes()], 9).1, 9 + 3);
    assert_eq!(end_after(Api::OpenAiResponses, false, [RESPONSE.as_bytes()], 9).1, 1 + 2);
}

#[test]
fn event_that_is_held_back_names_the_response() {
    let mut stream = EndableStream::new(Api::OpenAi, true).expect("an API with an end");
    assert!(matches!(stream.read(CHAT.as_bytes()), Progress::Complete(_)));
    let mut out = Vec::new();
    stream.end(&USAGE, &mut out);
    assert_eq!(parse(&String::from_utf8(out).expect("text"))[0].1["id"], "c-1");
}

#[test]
fn stream_without_end_has_a_bound() {
    let mut stream = EndableStream::new(Api::OpenAi, true).expect("an API with an end");
    let piece = "x".repeat(MAX_EVENT);
    assert_eq!(stream.read(piece.as_bytes()), Progress::Incomplete);
    assert_eq!(stream.read(piece.as_bytes()), Progress::TooLong);
}

#[test]
fn comment_passes_without_waiting_for_an_event() {
    let mut stream = EndableStream::new(Api::OpenAi, true).expect("an API with an end");
    let comment = b": keep\n\ndata: a";
    assert_eq!((stream.read(comment), stream.tokens()), (Progress::Complete(8), 0));
    let mut out = Vec::new();
    stream.pass(&mut out);
    assert_eq!(out, b": keep\n\n");
}
