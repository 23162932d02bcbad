//! A call of `admit` that is under way: what it is about, and how Redis was asked.
//!
//! Redis is asked again only where nothing ran, or where the script itself says so.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::answered_with;
use super::answers::{Answer, Answers};
use super::batch::Moment;
use super::lane::Shared;
use super::library::{is_forbidden, is_unknown};
use super::load::Load;
use super::resp::Reply;
use super::script::SCRIPT;
use crate::clock::Timestamp;
use crate::store::StoreError;
use crate::store::settings::KeySecret;

/// Requests, and how they were last sent.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) load: Load,
    pub(super) way: Way,
    /// Replies that come before its own, and tell nothing.
    pub(super) replies_before: usize,
    /// When to decide; at Redis's TIME if it does not say.
    at: Option<Timestamp>,
    near: Timestamp,
    knows_the_present: bool,
    pub(super) sent: Instant,
}

/// How Redis is asked to run the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As a function, which costs it least.
    Function,
    /// As a function that it is sent before.
    NewFunction,
    /// By the digest under which it knows a script that has run.
    Digest,
    /// As a whole.
    Source,
}

/// What follows from a reply.
pub(super) enum Next {
    Tell(Answers),
    /// Nothing was decided, and Redis is to be asked again.
    Ask(Again),
    Fail(StoreError),
}

/// How Redis is to be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    AsUsual,
    By(Way),
    /// By digest, now and from now on.
    WithoutFunctions,
}

impl Call {
    pub(super) fn new(load: Load, way: Way, shared: &Shared) -> Self {
        let at = load.now();
        let near = at.unwrap_or_else(|| shared.present.guess());
        Self { load, way, replies_before: 0, at, near, knows_the_present: false, sent: Instant::now() }
    }

    /// Adds what is to be sent.
    pub(super) fn write(&mut self, secret: &KeySecret, shared: &Shared, unsent: &mut Vec<u8>) {
        // Steps of an odd constant from a random start: no value comes twice, and no two gateways walk alike.
        let random = shared.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        self.sent = Instant::now();
        shared.metrics.store_called();
        if self.way == Way::NewFunction {
            // Another gateway may have loaded it just now; whether it is there now is for the call to say.
            SCRIPT.library().write_load(unsent);
            self.replies_before = 1;
        }
        let (name, script) = match self.way {
            Way::Function | Way::NewFunction => ("FCALL", SCRIPT.library().name()),
            Way::Digest => ("EVALSHA", SCRIPT.digest()),
            Way::Source => ("EVAL", SCRIPT.source()),
        };
        let moment = Moment { now: self.at, near: self.near, random };
        self.load.batch.write(name, script, secret, moment, unsent);
    }

    /// What follows from the reply to it.
    pub(super) fn next(&mut self, reply: Reply<'_>, shared: &Shared) -> Next {
        match reply {
            Reply::Text(answers) => match self.load.batch.answer(answers) {
                Ok(answer) => self.after(answer, shared),
                Err(error) => Next::Fail(error),
            },
            Reply::Error(word, rest) => match self.other_way(word, rest) {
                Some(again) => Next::Ask(again),
                None => Next::Fail(answered_with(word, rest)),
            },
            Reply::Other => Next::Fail(StoreError::Shape),
        }
    }

    fn after(&mut self, answer: Answer, shared: &Shared) -> Next {
        match answer {
            // Nothing ran, so asking once more resends nothing.
            Answer::BoundariesNeeded(shown) if !self.knows_the_present => {
                shared.present.learn(shown);
                (self.near, self.knows_the_present) = (shown, true);
                Next::Ask(Again::AsUsual)
            }
            Answer::BoundariesNeeded(_) => Next::Fail(StoreError::Shape),
            Answer::Decided(answers) => Next::Tell(answers),
        }
    }

    /// How else to ask after an error that says that nothing ran.
    fn other_way(&self, word: &str, rest: &str) -> Option<Again> {
        match self.way {
            Way::Function if is_unknown(rest) => Some(Again::By(Way::NewFunction)),
            Way::Function | Way::NewFunction if is_unknown(rest) || is_forbidden(word, rest) => {
                Some(Again::WithoutFunctions)
            }
            // A Redis without memory runs no function that could write; a script it runs until that writes. So who is
            // refused is told so.
            Way::Function | Way::NewFunction if word == "OOM" => Some(Again::By(Way::Digest)),
            Way::Digest if word == "NOSCRIPT" => Some(Again::By(Way::Source)),
            _ => None,
        }
    }
}
