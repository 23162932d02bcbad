//! Anthropic's messages: the open block stops, `message_delta` has `stop_reason: "max_tokens"`, and `message_stop` follows.

use serde_json::json;

use super::events::{Event, Kind};
use super::write;
use crate::usage::Usage;

/// The block that is open. The output is complete after `message_delta`.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    block: Option<u64>,
    pub(super) is_finished: bool,
}

impl Stream {
    pub(super) fn pass(&mut self, event: &Event) {
        self.is_finished |= event.is_finished;
        match event.kind {
            Kind::BlockStart => self.block = Some(event.number.unwrap_or(0)),
            Kind::BlockStop => self.block = None,
            Kind::Other => {}
        }
    }

    pub(super) fn end(&self, usage: &Usage, out: &mut Vec<u8>) {
        let mut event = |name: &str, data| write(Some(name), &data, out);
        if let Some(block) = self.block {
            event("content_block_stop", json!({ "type": "content_block_stop", "index": block }));
        }
        let delta = json!({ "stop_reason": "max_tokens", "stop_sequence": null });
        let usage = json!({ "output_tokens": usage.output });
        event("message_delta", json!({ "type": "message_delta", "delta": delta, "usage": usage }));
        event("message_stop", json!({ "type": "message_stop" }));
    }
}
