//! OpenAI's responses: `response.incomplete` with the reason `max_output_tokens`.

use serde_json::json;

use super::events::Event;
use super::write;
use crate::usage::Usage;

/// The members of the response, and the number of the last event.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    id: Option<Box<str>>,
    model: Option<Box<str>>,
    created_at: Option<u64>,
    number: Option<u64>,
    pub(super) is_finished: bool,
}

impl Stream {
    pub(super) fn pass(&mut self, event: Event) {
        self.id = event.id.or(self.id.take());
        self.model = event.model.or(self.model.take());
        self.created_at = event.created.or(self.created_at);
        self.number = event.number.or(self.number);
        self.is_finished |= event.is_finished;
    }

    /// The response of the event has no output: the gateway does not store it, and the client has it in the earlier events.
    pub(super) fn end(&self, usage: &Usage, out: &mut Vec<u8>) {
        let input = usage.total() - usage.output;
        let event = json!({
            "type": "response.incomplete",
            "sequence_number": self.number.map_or(0, |number| number + 1),
            "response": {
                "id": self.id, "object": "response", "created_at": self.created_at.unwrap_or(0), "model": self.model,
                "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" }, "error": null,
                "instructions": null, "metadata": {}, "output": [], "parallel_tool_calls": true, "temperature": null,
                "tool_choice": "auto", "tools": [], "top_p": null,
                "usage": {
                    "input_tokens": input, "input_tokens_details": { "cached_tokens": usage.cached_input },
                    "output_tokens": usage.output, "output_tokens_details": { "reasoning_tokens": 0 },
                    "total_tokens": usage.total(),
                },
            },
        });
        write(Some("response.incomplete"), &event, out);
    }
}
