//! Collects the values of a request's members.

use super::edit::Position;
use super::places::{Role, Row, is_single, is_visible_kind, rows};
use super::{Request, RequestError};
use crate::format::{Api, parse_count};
use crate::json::{Field, Sink, Value};

/// The tokens that an API may add to a message: the role, and marks around it.
const TOKENS_OF_A_MESSAGE: u64 = 16;

/// The tokens that an API may add to a request with tools: instructions for their use.
const TOKENS_OF_TOOLS: u64 = 1_024;

/// The state while a request is read.
pub(super) struct Reading {
    rows: &'static [Row],
    request: Request,
    /// The rows of single members that were found, as bits.
    found: u32,
    messages: u64,
    prompts: u64,
    generates: bool,
    has_tools: bool,
    error: Option<RequestError>,
}

impl Reading {
    pub(super) fn new(api: Api) -> Self {
        Self {
            rows: rows(api),
            request: Request { outputs: 1, ..Request::default() },
            found: 0,
            messages: 0,
            prompts: 0,
            // Other requests of OpenAI (embeddings) have no output.
            generates: api != Api::OpenAi,
            has_tools: false,
            error: None,
        }
    }

    /// The request, whose body has this many bytes.
    pub(super) fn end(mut self, bytes: u64) -> Result<Request, RequestError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let tools = if self.has_tools { TOKENS_OF_TOOLS } else { 0 };
        self.request.input = bytes + self.messages * TOKENS_OF_A_MESSAGE + tools;
        self.request.outputs = self.request.outputs.saturating_mul(self.prompts.max(1));
        if !self.generates {
            self.request.output = Some(0);
        }
        Ok(self.request)
    }

    fn fail(&mut self, error: RequestError) {
        self.error.get_or_insert(error);
    }

    /// Counts a single member. Two spellings of the parent of the bound are the same member.
    fn check_single(&mut self, row: u8, role: Role, place: &'static str) {
        let bit = 1 << row;
        let is_second_parent = role == Role::OutputParent && self.request.positions.parent.is_some();
        if is_single(place) && self.found & bit != 0 || is_second_parent {
            self.fail(RequestError::Repeated(place));
        }
        self.found |= bit;
    }

    fn apply(&mut self, role: Role, place: &'static str, value: Value<'_>, at: u64) -> Result<(), RequestError> {
        let invalid = RequestError::Invalid(place);
        let position = Position::new(value, at);
        match role {
            Role::Root if value != Value::Object => return Err(RequestError::NotObject),
            Role::Root => self.request.positions.root = at,
            Role::Output => match count(value).ok_or(invalid)? {
                // Of two names of the bound, the upstream may know only one.
                Some(bound) => self.request.output = self.request.output.max(Some(bound)),
                None => self.request.positions.output = self.request.positions.output.or(position),
            },
            Role::OutputParent => self.request.positions.parent = Some(position.ok_or(invalid)?),
            Role::Outputs => self.request.outputs = self.request.outputs.max(count(value).ok_or(invalid)?.unwrap_or(1)),
            Role::Generates => {
                self.generates = true;
                self.request.positions.has_messages |= place == "/messages";
            }
            Role::Message => self.messages += 1,
            Role::Prompt => self.prompts += u64::from(!matches!(value, Value::Number(_))),
            Role::Tool => self.has_tools = true,
            Role::Reasoning => self.request.reasons |= value != Value::Null,
            Role::Model => self.request.model = text(value),
            Role::Stream => self.request.is_stream = flag(value).ok_or(invalid)?,
            Role::StreamOptions => self.request.positions.stream_options = Some(position.ok_or(invalid)?),
            Role::IncludeUsage => {
                self.request.includes_usage = flag(value).ok_or(invalid)?;
                self.request.positions.include_usage = position;
            }
            Role::Kind if is_visible_kind(value) => {}
            Role::Hidden if matches!(value, Value::Null | Value::Bool(false)) => {}
            Role::Kind | Role::Hidden => self.request.hidden = self.request.hidden.or(Some(place)),
            Role::Harmless => {}
        }
        Ok(())
    }
}

impl Sink for Reading {
    const SEES_LOOKALIKES: bool = true;

    fn value(&mut self, Field(row): Field, value: Value<'_>, at: u64) {
        let Some((role, place)) = self.rows.get(usize::from(row)) else { return };
        self.check_single(row, *role, place);
        if let Err(error) = self.apply(*role, place, value, at) {
            self.fail(error);
        }
    }

    fn text(&mut self, _: Field, _: usize) {}

    fn lookalike(&mut self) {
        self.fail(RequestError::Lookalike);
    }
}

/// A number of tokens or outputs, or `None` for `null`. Returns `None` if it is neither.
#[expect(clippy::option_option, reason = "`null` is valid and no number")]
fn count(value: Value<'_>) -> Option<Option<u64>> {
    match value {
        Value::Null => Some(None),
        Value::Number(number) => parse_count(number).map(Some),
        _ => None,
    }
}

/// A truth value; `null` is false.
fn flag(value: Value<'_>) -> Option<bool> {
    match value {
        Value::Null => Some(false),
        Value::Bool(flag) => Some(flag),
        _ => None,
    }
}

fn text(value: Value<'_>) -> Option<String> {
    match value {
        Value::String(text) => String::from_utf8(text.to_vec()).ok(),
        _ => None,
    }
}
