//! Requests in the shapes that clients send, and in shapes that bypass a bound.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{Request, RequestError};
use crate::Api;

fn read(api: Api, body: &Json) -> Request {
    Request::read(api, body.to_string().as_bytes()).expect("valid")
}

fn error(api: Api, body: &str) -> Option<RequestError> {
    Request::read(api, body.as_bytes()).err()
}

/// The body after a rewrite, or `None` if nothing changes.
fn rewrite(api: Api, body: &str, output: Option<u64>, includes_usage: bool) -> Option<Json> {
    let request = Request::read(api, body.as_bytes()).expect("valid");
    let changed = request.rewrite(api, body.as_bytes(), output, includes_usage)?;
    Some(serde_json::from_slice(&changed).expect("JSON"))
}

#[test]
fn each_api_has_its_bound_of_the_output() {
    let bodies = [
        (Api::OpenAi, json!({ "messages": [], "max_completion_tokens": 7 })),
        (Api::OpenAi, json!({ "messages": [], "max_tokens": 7 })),
        (Api::OpenAi, json!({ "messages": [], "max_tokens": 5, "max_completion_tokens": 7 })),
        (Api::OpenAi, json!({ "prompt": "a", "max_tokens": 7 })),
        (Api::OpenAiResponses, json!({ "input": "a", "max_output_tokens": 7 })),
        (Api::Anthropic, json!({ "messages": [], "max_tokens": 7 })),
        (Api::Gemini, json!({ "contents": [], "generationConfig": { "maxOutputTokens": 7 } })),
        (Api::Gemini, json!({ "contents": [], "generation_config": { "max_output_tokens": 7 } })),
        (Api::Bedrock, json!({ "messages": [], "inferenceConfig": { "maxTokens": 7 } })),
    ];
    for (api, body) in bodies {
        let request = read(api, &body);
        assert_eq!((request.output, request.outputs, request.hidden), (Some(7), 1, None), "{body}");
        assert!(request.input >= body.to_string().len() as u64);
    }
}

#[test]
fn several_outputs_are_counted() {
    let outputs = |api, body| read(api, &body).outputs;
    assert_eq!(outputs(Api::OpenAi, json!({ "messages": [], "n": 3 })), 3);
    assert_eq!(outputs(Api::OpenAi, json!({ "prompt": ["a", "b"], "n": 2, "best_of": 5 })), 10);
    assert_eq!(outputs(Api::OpenAi, json!({ "prompt": [1, 2, 3] })), 1);
    assert_eq!(outputs(Api::OpenAi, json!({ "prompt": [[1, 2], [3]], "n": null })), 2);
    assert_eq!(outputs(Api::Gemini, json!({ "generationConfig": { "candidateCount": 4 } })), 4);
    assert_eq!(outputs(Api::OpenAi, json!({ "messages": [], "n": 0 })), 1);
}

#[test]
fn embeddings_have_no_output() {
    assert_eq!(read(Api::OpenAi, &json!({ "model": "e", "input": ["a"] })).output, Some(0));
}

#[test]
fn request_names_model_and_stream() {
    let request = read(
        Api::OpenAi,
        &json!({ "messages": [], "model": "m", "stream": true, "stream_options": { "include_usage": true } }),
    );
    assert_eq!(request.model.as_deref(), Some("m"));
    assert!(request.is_stream && request.includes_usage);
    assert_eq!(request.output, None);
}

#[test]
fn reasoning_is_output_that_a_stream_does_not_show() {
    for (api, body) in [
        (Api::OpenAi, json!({ "messages": [], "reasoning_effort": "low" })),
        (Api::OpenAi, json!({ "messages": [], "reasoning": { "max_tokens": 7 } })),
        (Api::OpenAiResponses, json!({ "input": "a", "reasoning": {} })),
        (Api::Anthropic, json!({ "messages": [], "thinking": { "type": "enabled", "budget_tokens": 7 } })),
    ] {
        assert!(read(api, &body).reasons, "{body}");
    }
    assert!(!read(Api::OpenAi, &json!({ "messages": [], "reasoning_effort": null })).reasons);
}

#[test]
fn input_that_the_request_does_not_have_is_hidden() {
    let cases = [
        (
            Api::OpenAi,
            json!({ "messages": [{ "content": [{ "type": "image_url", "image_url": { "url": "https://a" } }] }] }),
        ),
        (Api::OpenAi, json!({ "messages": [], "web_search_options": {} })),
        (Api::OpenAiResponses, json!({ "input": "a", "previous_response_id": "r" })),
        (Api::OpenAiResponses, json!({ "input": [{ "type": "item_reference", "id": "i" }] })),
        (Api::OpenAiResponses, json!({ "input": "a", "tools": [{ "type": "file_search" }] })),
        (Api::OpenAiResponses, json!({ "input": "a", "background": true })),
        (Api::Anthropic, json!({ "messages": [{ "content": [{ "type": "document", "source": { "type": "url" } }] }] })),
        (
            Api::Anthropic,
            json!({ "messages": [{ "content": [{ "type": "tool_result", "content": [{ "type": "image" }] }] }] }),
        ),
        (Api::Anthropic, json!({ "messages": [], "tools": [{ "type": "web_search_20250305" }] })),
        (Api::Gemini, json!({ "contents": [{ "parts": [{ "fileData": {} }] }] })),
        (Api::Gemini, json!({ "contents": [], "tools": [{ "googleSearch": {} }] })),
        (Api::Gemini, json!({ "contents": [], "cachedContent": "c" })),
        (Api::Bedrock, json!({ "messages": [{ "content": [{ "image": {} }] }] })),
        (Api::Bedrock, json!({ "messages": [{ "content": [{ "toolResult": { "content": [{ "document": {} }] } }] }] })),
    ];
    for (api, body) in cases {
        assert!(read(api, &body).hidden.is_some(), "{body}");
    }
}

#[test]
fn text_and_functions_are_visible() {
    let cases = [
        (
            Api::OpenAi,
            json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "a" }] }, { "content": "b" }],
            "tools": [{ "type": "function", "function": { "parameters": { "type": "object" } } }] }),
        ),
        (
            Api::OpenAiResponses,
            json!({ "input": [{ "role": "user", "content": [{ "type": "input_text", "text": "a" }] }],
            "previous_response_id": null, "background": false }),
        ),
        (
            Api::Anthropic,
            json!({ "system": [{ "type": "text", "text": "s" }], "tools": [{ "name": "t", "input_schema": {} }],
            "messages": [{ "content": [{ "type": "tool_result", "content": [{ "type": "text" }] }] }] }),
        ),
        (
            Api::Gemini,
            json!({ "contents": [{ "parts": [{ "text": "a" }, { "functionResponse": { "response": {} } }] }],
            "tools": [{ "functionDeclarations": [] }] }),
        ),
        (
            Api::Bedrock,
            json!({ "messages": [{ "content": [{ "text": "a" }, { "toolResult": { "content": [{ "json": {} }] } }] }],
            "toolConfig": { "tools": [{ "toolSpec": {} }] } }),
        ),
    ];
    for (api, body) in cases {
        assert_eq!(read(api, &body).hidden, None, "{body}");
    }
}

#[test]
fn body_with_two_readings_is_an_error() {
    let repeated = |place| Some(RequestError::Repeated(place));
    assert_eq!(error(Api::Anthropic, r#"{"max_tokens":1,"max_tokens":99999}"#), repeated("/max_tokens"));
    assert_eq!(error(Api::Anthropic, r#"{"max_tokens":1,"max\u005ftokens":99999}"#), repeated("/max_tokens"));
    assert_eq!(
        error(Api::Bedrock, r#"{"inferenceConfig":{"maxTokens":1},"inferenceConfig":{}}"#),
        repeated("/inferenceConfig")
    );
    assert_eq!(
        error(Api::Gemini, r#"{"generationConfig":{"maxOutputTokens":1},"generation_config":{"maxOutputTokens":9}}"#),
        repeated("/generation_config")
    );
    assert_eq!(error(Api::OpenAi, r#"{"model":"cheap","model":"dear"}"#), repeated("/model"));
    assert_eq!(error(Api::OpenAi, r#"{"max_tokens":1,"MAX_TOKENS":99999}"#), Some(RequestError::Lookalike));
    assert_eq!(error(Api::OpenAi, "{\"max_tokens\":1,\"max_to\u{212A}ens\":99999}"), Some(RequestError::Lookalike));
}

#[test]
fn value_that_the_api_does_not_allow_is_an_error() {
    let invalid = |place| Some(RequestError::Invalid(place));
    for value in ["1e999", "-1", "\"7\"", "[7]", "true", "9007199254740993"] {
        assert_eq!(error(Api::Anthropic, &format!(r#"{{"max_tokens":{value}}}"#)), invalid("/max_tokens"), "{value}");
    }
    assert_eq!(error(Api::OpenAi, r#"{"messages":[],"n":"2"}"#), invalid("/n"));
    assert_eq!(error(Api::OpenAi, r#"{"messages":[],"stream":"true"}"#), invalid("/stream"));
    assert_eq!(error(Api::Gemini, r#"{"generationConfig":[]}"#), invalid("/generationConfig"));
    assert_eq!(error(Api::OpenAi, r#"{"messages":[],"stream_options":7}"#), invalid("/stream_options"));
}

#[test]
fn body_other_than_a_json_object_is_an_error() {
    for body in ["", "{", "{}x", r#"{"a":01}"#, "{\"a\":\"\u{1}\"}", r#"{"a":1e}"#, r#"{"a":"\ud800x"}x"#] {
        assert_eq!(error(Api::OpenAi, body), Some(RequestError::NotJson), "{body}");
    }
    assert_eq!(Request::read(Api::OpenAi, b"{\"a\":\"\xff\"}").err(), Some(RequestError::NotJson));
    let deep = "[".repeat(200) + &"]".repeat(200);
    assert_eq!(error(Api::OpenAi, &format!(r#"{{"a":{deep}}}"#)), Some(RequestError::NotJson));
    for body in ["[]", "7", "null", "\"a\""] {
        assert_eq!(error(Api::OpenAi, body), Some(RequestError::NotObject), "{body}");
    }
}

#[test]
fn missing_bound_is_written_into_the_body() {
    let bound = |api, body: &str| rewrite(api, body, Some(9), false);
    assert_eq!(bound(Api::OpenAi, r#"{"messages":[]}"#), Some(json!({ "messages": [], "max_completion_tokens": 9 })));
    assert_eq!(bound(Api::OpenAi, r#"{"prompt":"a"}"#), Some(json!({ "prompt": "a", "max_tokens": 9 })));
    assert_eq!(
        bound(Api::OpenAi, r#"{"messages":[],"max_tokens":null}"#),
        Some(json!({ "messages": [], "max_tokens": 9 }))
    );
    assert_eq!(bound(Api::OpenAi, r#"{"messages":[],"max_tokens":3}"#), None);
    assert_eq!(bound(Api::OpenAi, r#"{"input":"a"}"#), None);
    assert_eq!(bound(Api::Anthropic, " { } "), Some(json!({ "max_tokens": 9 })));
    assert_eq!(bound(Api::Gemini, "{}"), Some(json!({ "generationConfig": { "maxOutputTokens": 9 } })));
    assert_eq!(
        bound(Api::Gemini, r#"{"generation_config":{"temperature":1}}"#),
        Some(json!({ "generation_config": { "maxOutputTokens": 9, "temperature": 1 } }))
    );
    assert_eq!(
        bound(Api::Gemini, r#"{"generationConfig":null}"#),
        Some(json!({ "generationConfig": { "maxOutputTokens": 9 } }))
    );
}

#[test]
fn usage_of_a_stream_is_requested() {
    let ask = |body: &str| rewrite(Api::OpenAi, body, None, true);
    let expected = json!({ "stream": true, "stream_options": { "include_usage": true } });
    for body in [
        r#"{"stream":true}"#,
        r#"{"stream":true,"stream_options":null}"#,
        r#"{"stream":true,"stream_options":{}}"#,
        r#"{"stream":true,"stream_options":{"include_usage":false}}"#,
        r#"{"stream":true,"stream_options":{"include_usage":null}}"#,
    ] {
        assert_eq!(ask(body), Some(expected.clone()), "{body}");
    }
    assert_eq!(ask(&expected.to_string()), None);
    assert_eq!(ask(r#"{"stream":false}"#), None);
    assert_eq!(rewrite(Api::Anthropic, r#"{"stream":true}"#, None, true), None);
}

#[test]
fn both_changes_keep_their_places() {
    let body = r#"{"stream_options":{"x":1},"stream":true,"max_tokens": null ,"messages":[]}"#;
    let expected =
        json!({ "stream_options": { "include_usage": true, "x": 1 }, "stream": true, "max_tokens": 5, "messages": [] });
    assert_eq!(rewrite(Api::OpenAi, body, Some(5), true), Some(expected));
}

proptest! {
    #[test]
    fn rewritten_request_has_the_bound(members in prop::collection::btree_set(0_usize..8, 0..8), is_pretty: bool, bound in 0_u64..9_999) {
        let all = [("messages", json!([{ "content": "a" }])), ("max_tokens", Json::Null), ("stream", json!(true)),
            ("stream_options", json!({ "a": [1] })), ("n", json!(2)), ("model", json!("m{\"")), ("x", json!({})), ("generationConfig", json!({}))];
        let body: Json = members.iter().map(|index| (all[*index].0.to_owned(), all[*index].1.clone())).collect::<serde_json::Map<_, _>>().into();
        let text = if is_pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) }.expect("JSON");
        for api in Api::ALL.iter().copied() {
            let request = Request::read(api, text.as_bytes()).expect("valid");
            let changed = request.rewrite(api, text.as_bytes(), Some(bound), true).unwrap_or_else(|| text.clone().into_bytes());
            let again = Request::read(api, &changed).expect("valid");
            let expected = if request.output == Some(0) { 0 } else { bound };
            prop_assert_eq!(again.output, Some(expected), "{}", String::from_utf8_lossy(&changed));
            prop_assert_eq!(again.includes_usage, api == Api::OpenAi && again.is_stream);
        }
    }
}
