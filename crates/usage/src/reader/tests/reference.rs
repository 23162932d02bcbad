//! A second reader of usages, which has the whole body: it builds trees, and walks them. The fuzz target `usage` compares with
//! it too.

use serde::de::IgnoredAny;

use super::{Api, Usage};

/// The media types of streams. All other bodies are JSON.
pub(super) const EVENTS: &str = "text/event-stream";
pub(super) const EVENT_STREAM: &str = "application/vnd.amazon.eventstream";

/// A JSON text, with repeated members.
enum Json {
    Number(String),
    /// A string of this many bytes.
    Text(usize),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
    Other,
}

/// The numbers of a usage, in the order of `Counts::latest`.
const INPUT: usize = 0;
const CACHED: usize = 1;
const WRITTEN: usize = 2;
const TOOLS: usize = 3;
const OUTPUT: usize = 4;
const THOUGHTS: usize = 5;
const TOTAL: usize = 6;

/// The latest numbers, and the bytes of the text of a stream.
#[derive(Default)]
struct Counts {
    latest: [Option<u64>; 7],
    text: u64,
}

/// The longest number that is read, in bytes.
const MAX_NUMBER: usize = 64;

/// The deepest nesting that is compared.
const MAX_DEPTH: usize = 100;

/// Returns the usage and the bytes of text in a body. Returns `None` if a text in the body is not JSON: readers may find a part
/// of its numbers.
pub(super) fn read(api: Api, media_type: &str, body: &[u8]) -> Option<(Option<Usage>, u64)> {
    let texts = match media_type {
        EVENTS => events(body),
        EVENT_STREAM => messages(body),
        _ => vec![body.to_vec()],
    };
    let mut counts = Counts::default();
    for text in texts.iter().filter(|text| !text.is_empty() && *text != b"[DONE]") {
        counts.walk(api, &mut Vec::new(), &parse(text)?, false);
    }
    Some((counts.usage(api), counts.text))
}

/// Splits a stream into lines, and joins the lines of data of each event.
fn events(body: &[u8]) -> Vec<Vec<u8>> {
    let text: String = body.iter().copied().map(char::from).collect();
    let text = text.strip_prefix("\u{EF}\u{BB}\u{BF}").unwrap_or(&text).replace("\r\n", "\n").replace('\r', "\n");
    let (mut all, mut data) = (Vec::new(), None::<String>);
    for line in text.split('\n').chain([""]) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        if line.is_empty() {
            all.extend(data.take());
        } else if name == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            data = Some(data.map_or_else(|| value.to_owned(), |data| data + "\n" + value));
        }
    }
    all.iter().map(|text| text.chars().filter_map(|byte| u8::try_from(byte).ok()).collect()).collect()
}

/// Returns the payloads of an event stream of AWS, until a message is malformed. The last payload may be incomplete.
fn messages(mut body: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((prelude, rest)) = body.split_at_checked(12) {
        let number = |at: usize| prelude[at..at + 4].iter().fold(0, |sum, byte| sum * 256 + usize::from(*byte));
        let (length, headers) = (number(0), number(4));
        if length > 32 << 20 || length < headers + 16 {
            break;
        }
        let payload = rest.get(headers..).unwrap_or_default();
        all.push(payload[..payload.len().min(length - headers - 16)].to_vec());
        body = body.get(length..).unwrap_or_default();
    }
    all
}

fn parse(text: &[u8]) -> Option<Json> {
    let text = str::from_utf8(text).ok()?;
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let mut rest = text;
    value(&mut rest, 0)
}

/// Reads a value of a valid text.
fn value(rest: &mut &str, depth: usize) -> Option<Json> {
    skip_space(rest);
    match rest.chars().next()? {
        _ if depth > MAX_DEPTH => None,
        '"' => string(rest).map(|text| Json::Text(text.len())),
        '[' => {
            let mut all = Vec::new();
            while next_element(rest, ']')? {
                all.push(value(rest, depth + 1)?);
            }
            Some(Json::Array(all))
        }
        '{' => {
            let mut all = Vec::new();
            while next_element(rest, '}')? {
                let key = string(rest)?;
                skip_space(rest);
                *rest = rest.strip_prefix(':')?;
                all.push((key, value(rest, depth + 1)?));
            }
            Some(Json::Object(all))
        }
        _ => {
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && !"+-.".contains(letter));
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            *rest = after;
            Some(if word.starts_with(|first: char| first.is_ascii_lowercase()) {
                Json::Other
            } else {
                Json::Number(word.to_owned())
            })
        }
    }
}

/// Skips `[`, `{` or a comma. Returns `false` at the end of the array or object.
fn next_element(rest: &mut &str, end: char) -> Option<bool> {
    skip_space(rest);
    if let Some(after) = rest.strip_prefix(end) {
        *rest = after;
        return Some(false);
    }
    *rest = rest.strip_prefix([',', '[', '{']).unwrap_or(rest);
    skip_space(rest);
    match rest.strip_prefix(end) {
        Some(after) => {
            *rest = after;
            Some(false)
        }
        None => Some(true),
    }
}

fn skip_space(rest: &mut &str) {
    *rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
}

/// Reads a string. Halves of characters are replaced.
fn string(rest: &mut &str) -> Option<String> {
    let (mut units, mut chars) = (Vec::new(), rest.strip_prefix('"')?.chars());
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => units.push(match chars.next()? {
                'u' => u16::from_str_radix(&chars.by_ref().take(4).collect::<String>(), 16).ok()?,
                'b' => 8,
                'f' => 12,
                'n' => 10,
                'r' => 13,
                't' => 9,
                other => u16::try_from(u32::from(other)).ok()?,
            }),
            other => units.extend_from_slice(other.encode_utf16(&mut [0; 2])),
        }
    }
    *rest = chars.as_str();
    Some(String::from_utf16_lossy(&units))
}

impl Counts {
    fn walk(&mut self, api: Api, path: &mut Vec<String>, json: &Json, is_text: bool) {
        let is_text = is_text || texts(api).iter().any(|place| matches(place, path));
        match json {
            Json::Number(number) => {
                let places = places(api).iter().filter(|(_, place)| matches(place, path));
                places.for_each(|(kind, _)| self.latest[*kind] = count(number).or(self.latest[*kind]));
            }
            Json::Text(bytes) => self.text += if is_text { *bytes as u64 } else { 0 },
            Json::Array(all) => {
                for (index, element) in all.iter().enumerate() {
                    self.walk_member(api, path, index.to_string(), element, is_text);
                }
            }
            Json::Object(all) => {
                for (key, member) in all {
                    self.walk_member(api, path, key.clone(), member, is_text);
                }
            }
            Json::Other => {}
        }
    }

    fn walk_member(&mut self, api: Api, path: &mut Vec<String>, key: String, json: &Json, is_text: bool) {
        path.push(key);
        self.walk(api, path, json, is_text);
        path.pop();
    }

    fn usage(&self, api: Api) -> Option<Usage> {
        self.latest[OUTPUT].or(self.latest[TOTAL])?;
        let [input, cached, written, tools, output, thoughts, total] = self.latest.map(Option::unwrap_or_default);
        let of_caches = if matches!(api, Api::Anthropic | Api::Bedrock) { 0 } else { cached + written };
        let (input, output) = (input.saturating_sub(of_caches) + tools, output + thoughts);
        let parts = input + cached + written + output;
        let output = output + total.saturating_sub(parts);
        Some(Usage { input, cached_input: cached, cache_write: written, output })
    }
}

/// Returns `true` if a place is this path. `*` is an element, or a member of the whole text that no other place has.
fn matches(place: &str, path: &[String]) -> bool {
    let is_match = |(depth, (segment, key)): (usize, (&str, &String))| match segment {
        "*" => depth > 0 || !["usageMetadata", "candidates"].contains(&key.as_str()),
        _ => segment == key,
    };
    let segments = place.split('/').skip(1);
    segments.clone().count() == path.len() && segments.zip(path).enumerate().all(is_match)
}

/// A number of tokens: whole, rounded up, and at most 2^53.
fn count(number: &str) -> Option<u64> {
    let whole = number.parse().ok().or_else(|| {
        let number = number.parse::<f64>().ok()?.ceil() + 0.0;
        format!("{number:.0}").parse().ok()
    });
    whole.filter(|count| *count <= 1 << 53 && number.len() <= MAX_NUMBER)
}

fn places(api: Api) -> &'static [(usize, &'static str)] {
    match api {
        Api::OpenAi => &[
            (INPUT, "/usage/prompt_tokens"),
            (CACHED, "/usage/prompt_tokens_details/cached_tokens"),
            (OUTPUT, "/usage/completion_tokens"),
            (TOTAL, "/usage/total_tokens"),
            (INPUT, "/x_groq/usage/prompt_tokens"),
            (CACHED, "/x_groq/usage/prompt_tokens_details/cached_tokens"),
            (OUTPUT, "/x_groq/usage/completion_tokens"),
            (TOTAL, "/x_groq/usage/total_tokens"),
        ],
        Api::OpenAiResponses => &[
            (INPUT, "/usage/input_tokens"),
            (CACHED, "/usage/input_tokens_details/cached_tokens"),
            (OUTPUT, "/usage/output_tokens"),
            (TOTAL, "/usage/total_tokens"),
            (INPUT, "/response/usage/input_tokens"),
            (CACHED, "/response/usage/input_tokens_details/cached_tokens"),
            (OUTPUT, "/response/usage/output_tokens"),
            (TOTAL, "/response/usage/total_tokens"),
        ],
        Api::Anthropic => &[
            (INPUT, "/usage/input_tokens"),
            (CACHED, "/usage/cache_read_input_tokens"),
            (WRITTEN, "/usage/cache_creation_input_tokens"),
            (OUTPUT, "/usage/output_tokens"),
            (INPUT, "/message/usage/input_tokens"),
            (CACHED, "/message/usage/cache_read_input_tokens"),
            (WRITTEN, "/message/usage/cache_creation_input_tokens"),
        ],
        Api::Gemini => &[
            (INPUT, "/usageMetadata/promptTokenCount"),
            (CACHED, "/usageMetadata/cachedContentTokenCount"),
            (TOOLS, "/usageMetadata/toolUsePromptTokenCount"),
            (OUTPUT, "/usageMetadata/candidatesTokenCount"),
            (THOUGHTS, "/usageMetadata/thoughtsTokenCount"),
            (TOTAL, "/usageMetadata/totalTokenCount"),
            (INPUT, "/*/usageMetadata/promptTokenCount"),
            (CACHED, "/*/usageMetadata/cachedContentTokenCount"),
            (TOOLS, "/*/usageMetadata/toolUsePromptTokenCount"),
            (OUTPUT, "/*/usageMetadata/candidatesTokenCount"),
            (THOUGHTS, "/*/usageMetadata/thoughtsTokenCount"),
            (TOTAL, "/*/usageMetadata/totalTokenCount"),
        ],
        Api::Bedrock => &[
            (INPUT, "/usage/inputTokens"),
            (CACHED, "/usage/cacheReadInputTokens"),
            (WRITTEN, "/usage/cacheWriteInputTokens"),
            (OUTPUT, "/usage/outputTokens"),
            (TOTAL, "/usage/totalTokens"),
        ],
    }
}

fn texts(api: Api) -> &'static [&'static str] {
    match api {
        Api::OpenAi => &["/choices/*/delta", "/choices/*/text"],
        Api::OpenAiResponses | Api::Anthropic | Api::Bedrock => &["/delta"],
        Api::Gemini => &["/candidates/*/content", "/*/candidates/*/content"],
    }
}
