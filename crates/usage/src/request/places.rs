//! The members of requests that bound their cost, or that hide a part of it.

use std::sync::{Arc, LazyLock};

use crate::format::Api;
use crate::json::{Field, PointerError, Pointers, Value};

/// The meaning of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The whole request.
    Root,
    /// The most tokens of an output.
    Output,
    /// The object with [`Role::Output`].
    OutputParent,
    /// The number of outputs.
    Outputs,
    /// Only requests that generate text have this member.
    Generates,
    /// A message.
    Message,
    /// A prompt of several.
    Prompt,
    /// A tool. The API describes tools to the model in its own words too.
    Tool,
    Model,
    /// Asks for reasoning, whose tokens the response does not show.
    Reasoning,
    Stream,
    StreamOptions,
    IncludeUsage,
    /// The kind of a part of the input, or of a tool. Only some kinds have all of their tokens in the request.
    Kind,
    /// Adds tokens that the request does not have: stored conversations, files, images, tools on the server.
    Hidden,
    /// Keeps a member that is not [`Role::Hidden`] from the pointer to all other members.
    Harmless,
}

/// A member: its field in [`Pointers`] is its index.
pub(super) type Row = (Role, &'static str);

const OPENAI: &[Row] = &[
    (Role::Root, ""),
    (Role::Output, "/max_completion_tokens"),
    (Role::Output, "/max_tokens"),
    (Role::Outputs, "/n"),
    (Role::Outputs, "/best_of"),
    (Role::Generates, "/messages"),
    (Role::Generates, "/prompt"),
    (Role::Message, "/messages/*"),
    (Role::Prompt, "/prompt/*"),
    (Role::Model, "/model"),
    (Role::Stream, "/stream"),
    (Role::StreamOptions, "/stream_options"),
    (Role::IncludeUsage, "/stream_options/include_usage"),
    (Role::Kind, "/messages/*/content/*/type"),
    (Role::Tool, "/tools/*"),
    (Role::Kind, "/tools/*/type"),
    (Role::Tool, "/functions/*"),
    (Role::Hidden, "/web_search_options"),
    (Role::Hidden, "/prediction"),
    (Role::Hidden, "/audio"),
    (Role::Reasoning, "/reasoning_effort"),
    (Role::Reasoning, "/reasoning"),
];

const OPENAI_RESPONSES: &[Row] = &[
    (Role::Root, ""),
    (Role::Output, "/max_output_tokens"),
    (Role::Message, "/input/*"),
    (Role::Model, "/model"),
    (Role::Stream, "/stream"),
    (Role::Kind, "/input/*/type"),
    (Role::Kind, "/input/*/content/*/type"),
    (Role::Tool, "/tools/*"),
    (Role::Kind, "/tools/*/type"),
    (Role::Hidden, "/previous_response_id"),
    (Role::Hidden, "/conversation"),
    (Role::Hidden, "/prompt"),
    // The response would end before the usage is known.
    (Role::Hidden, "/background"),
    (Role::Reasoning, "/reasoning"),
];

const ANTHROPIC: &[Row] = &[
    (Role::Root, ""),
    (Role::Output, "/max_tokens"),
    (Role::Message, "/messages/*"),
    (Role::Model, "/model"),
    (Role::Stream, "/stream"),
    (Role::Kind, "/system/*/type"),
    (Role::Kind, "/messages/*/content/*/type"),
    (Role::Kind, "/messages/*/content/*/content/*/type"),
    (Role::Tool, "/tools/*"),
    (Role::Kind, "/tools/*/type"),
    (Role::Hidden, "/mcp_servers"),
    (Role::Reasoning, "/thinking"),
    (Role::Hidden, "/container"),
];

// Both spellings: JSON of Protocol Buffers allows the original names.
const GEMINI: &[Row] = &[
    (Role::Root, ""),
    (Role::OutputParent, "/generationConfig"),
    (Role::OutputParent, "/generation_config"),
    (Role::Output, "/generationConfig/maxOutputTokens"),
    (Role::Output, "/generationConfig/max_output_tokens"),
    (Role::Output, "/generation_config/maxOutputTokens"),
    (Role::Output, "/generation_config/max_output_tokens"),
    (Role::Outputs, "/generationConfig/candidateCount"),
    (Role::Outputs, "/generationConfig/candidate_count"),
    (Role::Outputs, "/generation_config/candidateCount"),
    (Role::Outputs, "/generation_config/candidate_count"),
    (Role::Message, "/contents/*"),
    (Role::Hidden, "/contents/*/parts/*/*"),
    (Role::Harmless, "/contents/*/parts/*/text"),
    (Role::Harmless, "/contents/*/parts/*/thought"),
    (Role::Harmless, "/contents/*/parts/*/thoughtSignature"),
    (Role::Harmless, "/contents/*/parts/*/thought_signature"),
    (Role::Harmless, "/contents/*/parts/*/functionCall"),
    (Role::Harmless, "/contents/*/parts/*/function_call"),
    (Role::Harmless, "/contents/*/parts/*/functionResponse"),
    (Role::Harmless, "/contents/*/parts/*/function_response"),
    (Role::Hidden, "/contents/*/parts/*/functionResponse/parts"),
    (Role::Hidden, "/contents/*/parts/*/function_response/parts"),
    (Role::Tool, "/tools/*"),
    (Role::Hidden, "/tools/*/*"),
    (Role::Harmless, "/tools/*/functionDeclarations"),
    (Role::Harmless, "/tools/*/function_declarations"),
    (Role::Hidden, "/cachedContent"),
    (Role::Hidden, "/cached_content"),
];

const BEDROCK: &[Row] = &[
    (Role::Root, ""),
    (Role::OutputParent, "/inferenceConfig"),
    (Role::Output, "/inferenceConfig/maxTokens"),
    (Role::Message, "/messages/*"),
    (Role::Hidden, "/messages/*/content/*/*"),
    (Role::Harmless, "/messages/*/content/*/text"),
    (Role::Harmless, "/messages/*/content/*/cachePoint"),
    (Role::Harmless, "/messages/*/content/*/guardContent"),
    (Role::Harmless, "/messages/*/content/*/reasoningContent"),
    (Role::Harmless, "/messages/*/content/*/toolUse"),
    (Role::Harmless, "/messages/*/content/*/toolResult"),
    (Role::Hidden, "/messages/*/content/*/toolResult/content/*/*"),
    (Role::Harmless, "/messages/*/content/*/toolResult/content/*/text"),
    (Role::Harmless, "/messages/*/content/*/toolResult/content/*/json"),
    (Role::Tool, "/toolConfig/tools/*"),
    (Role::Hidden, "/toolConfig/tools/*/*"),
    (Role::Harmless, "/toolConfig/tools/*/toolSpec"),
    (Role::Harmless, "/toolConfig/tools/*/cachePoint"),
    (Role::Hidden, "/promptVariables"),
    (Role::Hidden, "/additionalModelRequestFields"),
];

/// The kinds of parts and tools whose tokens are all in the request. Of all APIs, since no kind has two meanings.
const VISIBLE_KINDS: &[&str] = &[
    "text",
    "refusal",
    "function",
    "custom",
    "message",
    "input_text",
    "output_text",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_result",
];

/// The members of an API's requests.
pub(super) fn rows(api: Api) -> &'static [Row] {
    match api {
        Api::OpenAi => OPENAI,
        Api::OpenAiResponses => OPENAI_RESPONSES,
        Api::Anthropic => ANTHROPIC,
        Api::Gemini => GEMINI,
        Api::Bedrock => BEDROCK,
    }
}

/// The places of these members.
pub(super) fn pointers(api: Api) -> Arc<Pointers> {
    // A test builds the pointers of every API.
    static ALL: LazyLock<Vec<Arc<Pointers>>> =
        LazyLock::new(|| Api::ALL.iter().map(|api| Arc::new(build(*api).unwrap_or_default())).collect());
    Arc::clone(&ALL[api as usize])
}

fn build(api: Api) -> Result<Pointers, PointerError> {
    (0..).zip(rows(api)).try_fold(Pointers::default(), |all, (row, (_, place))| all.value(place, Field(row)))
}

/// Returns `true` if all tokens of this kind of part or tool are in the request.
pub(super) fn is_visible_kind(kind: Value<'_>) -> bool {
    match kind {
        Value::Null => true,
        Value::String(kind) => VISIBLE_KINDS.iter().any(|visible| visible.as_bytes() == kind),
        _ => false,
    }
}

/// Returns `true` if a request can have this member only once.
pub(super) fn is_single(place: &str) -> bool {
    !place.contains('*')
}

/// Where the bound of the output is written: the object, if it is not the request, and the member.
pub(super) fn output_member(api: Api, has_messages: bool) -> (Option<&'static str>, &'static str) {
    match api {
        Api::OpenAi if has_messages => (None, "max_completion_tokens"),
        Api::OpenAi | Api::Anthropic => (None, "max_tokens"),
        Api::OpenAiResponses => (None, "max_output_tokens"),
        Api::Gemini => (Some("generationConfig"), "maxOutputTokens"),
        Api::Bedrock => (Some("inferenceConfig"), "maxTokens"),
    }
}

#[cfg(test)]
mod tests {
    use super::{build, rows};
    use crate::format::Api;

    #[test]
    fn every_api_has_valid_places() {
        for (index, api) in Api::ALL.iter().copied().enumerate() {
            assert_eq!(api as usize, index);
            assert!(build(api).is_ok(), "{api:?}");
            assert!(rows(api).len() <= 32, "one bit for each");
        }
    }
}
