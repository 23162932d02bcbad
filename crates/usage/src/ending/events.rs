//! The members of an event that the gateway reads.

use crate::format::{Api, parse_count};
use crate::json::{Field, Sink, Value};

/// The members of one event.
#[derive(Clone, Debug, Default)]
pub(super) struct Event {
    /// The bytes of text.
    pub(super) text: u64,
    pub(super) has_usage: bool,
    pub(super) has_choice: bool,
    /// The output is complete.
    pub(super) is_finished: bool,
    pub(super) kind: Kind,
    /// An earlier event has had the names.
    pub(super) is_named: bool,
    /// The number of a block or of the event.
    pub(super) number: Option<u64>,
    pub(super) created: Option<u64>,
    pub(super) id: Option<Box<str>>,
    pub(super) model: Option<Box<str>>,
    pub(super) object: Option<Box<str>>,
}

/// The kinds of events that change how a stream ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    BlockStart,
    BlockStop,
    #[default]
    Other,
}

pub(super) const TEXT: Field = Field(0);
const USAGE: Field = Field(1);
const CHOICE: Field = Field(2);
const FINISH: Field = Field(3);
const KIND: Field = Field(4);
const NUMBER: Field = Field(5);
const CREATED: Field = Field(6);
const ID: Field = Field(7);
const MODEL: Field = Field(8);
const OBJECT: Field = Field(9);

/// The places of text that the model has generated.
pub(super) fn texts(api: Api) -> &'static [&'static str] {
    match api {
        Api::OpenAi => &["/choices/*/delta", "/choices/*/text"],
        // The names of functions are in no delta.
        Api::OpenAiResponses => &["/delta", "/item/name"],
        Api::Anthropic => &["/delta", "/content_block"],
        Api::Gemini | Api::Bedrock => &[],
    }
}

/// The places of other members.
pub(super) fn values(api: Api) -> &'static [(Field, &'static str)] {
    match api {
        Api::OpenAi => &[
            (USAGE, "/usage"),
            (CHOICE, "/choices/*"),
            (FINISH, "/choices/*/finish_reason"),
            (CREATED, "/created"),
            (ID, "/id"),
            (MODEL, "/model"),
            (OBJECT, "/object"),
        ],
        Api::OpenAiResponses => &[
            (KIND, "/type"),
            (NUMBER, "/sequence_number"),
            (CREATED, "/response/created_at"),
            (ID, "/response/id"),
            (MODEL, "/response/model"),
        ],
        Api::Anthropic => &[(KIND, "/type"), (NUMBER, "/index")],
        Api::Gemini | Api::Bedrock => &[],
    }
}

impl Sink for Event {
    fn value(&mut self, field: Field, value: Value<'_>, _: u64) {
        match (field, value) {
            (USAGE, Value::Object) => self.has_usage = true,
            (CHOICE, _) => self.has_choice = true,
            (FINISH, Value::String(_)) => self.is_finished = true,
            (KIND, Value::String(kind)) => self.read_kind(kind),
            (NUMBER, Value::Number(number)) => self.number = parse_count(number),
            (CREATED, Value::Number(number)) => self.created = parse_count(number),
            (ID | MODEL | OBJECT, _) if self.is_named => {}
            (ID, Value::String(text)) => self.id = to_text(text),
            (MODEL, Value::String(text)) => self.model = to_text(text),
            (OBJECT, Value::String(text)) => self.object = to_text(text),
            _ => {}
        }
    }

    fn text(&mut self, _: Field, bytes: usize) {
        self.text = self.text.saturating_add(bytes as u64);
    }
}

impl Event {
    fn read_kind(&mut self, kind: &[u8]) {
        match kind {
            b"content_block_start" => self.kind = Kind::BlockStart,
            b"content_block_stop" => self.kind = Kind::BlockStop,
            b"message_delta" | b"response.completed" | b"response.incomplete" | b"response.failed" | b"error" => {
                self.is_finished = true;
            }
            _ => {}
        }
    }

    /// Returns the members that all events of the stream have.
    pub(super) fn names(self) -> Self {
        let Self { created, id, model, object, .. } = self;
        Self { created, id, model, object, ..Self::default() }
    }
}

fn to_text(text: &[u8]) -> Option<Box<str>> {
    std::str::from_utf8(text).ok().map(Box::from)
}
