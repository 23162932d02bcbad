//! OpenAI's chat and completions: a chunk with `finish_reason: "length"`, the usage if the client asks for it, and `[DONE]`.

use serde_json::{Value, json};

use super::events::Event;
use super::write;
use crate::usage::Usage;

/// The members that all chunks of a stream have.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    id: Option<Box<str>>,
    model: Option<Box<str>>,
    object: Option<Box<str>>,
    created: Option<u64>,
    pub(super) is_finished: bool,
}

impl Stream {
    pub(super) fn pass(&mut self, event: Event) {
        self.id = event.id.or(self.id.take());
        self.model = event.model.or(self.model.take());
        self.object = event.object.or(self.object.take());
        self.created = event.created.or(self.created);
        self.is_finished |= event.is_finished;
    }

    pub(super) fn end(&self, usage: &Usage, has_usage: bool, out: &mut Vec<u8>) {
        if !self.is_finished {
            write(None, &self.chunk(&json!([self.last_choice()])), out);
        }
        if has_usage {
            let mut chunk = self.chunk(&json!([]));
            let prompt = usage.total() - usage.output;
            chunk["usage"] = json!({
                "prompt_tokens": prompt, "completion_tokens": usage.output, "total_tokens": usage.total(),
            });
            write(None, &chunk, out);
        }
        write(None, &"[DONE]", out);
    }

    fn is_of_chat(&self) -> bool {
        self.object.as_deref() != Some("text_completion")
    }

    fn last_choice(&self) -> Value {
        match self.is_of_chat() {
            true => json!({ "index": 0, "delta": {}, "logprobs": null, "finish_reason": "length" }),
            false => json!({ "index": 0, "text": "", "logprobs": null, "finish_reason": "length" }),
        }
    }

    fn chunk(&self, choices: &Value) -> Value {
        let object = self.object.as_deref().unwrap_or("chat.completion.chunk");
        let mut chunk = json!({ "object": object, "choices": choices });
        for (key, text) in [("id", &self.id), ("model", &self.model)] {
            if let Some(text) = text {
                chunk[key] = json!(text);
            }
        }
        if let Some(created) = self.created {
            chunk["created"] = created.into();
        }
        chunk
    }
}
