//! Which commands are new to this gateway: each is executed at most once.

use std::collections::{HashMap, VecDeque};

use super::command::FleetCommand;
use tidegate_limit::clock::Timestamp;

/// The texts that are remembered at most, so that they are not checked again at each reading.
const MAX_KNOWN: usize = 256;

/// The ids that are remembered at most, each until the end of its command. Only operators can add any.
const MAX_EXECUTED: usize = 1_024;

/// The commands that this gateway knows.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// The address of the store that was read.
    store: String,
    /// The time of the store when it was first read. Earlier commands were not for this process.
    first: Option<Timestamp>,
    /// The latest time of the store. A clock that is set back does not revive a command.
    latest: Timestamp,
    /// The hashes of the last texts.
    known: VecDeque<blake3::Hash>,
    /// The ids of the executed commands, with their ends.
    executed: HashMap<String, Timestamp>,
}

impl Inbox {
    /// Records a reading of the store, and returns the texts that were not read before.
    pub(super) fn read(&mut self, store: String, now: Timestamp, texts: Vec<String>) -> Vec<String> {
        if self.store != store {
            // The clock of another store may differ. The executed commands stay known.
            (self.store, self.first, self.latest) = (store, None, Timestamp::default());
        }
        self.first.get_or_insert(now);
        self.latest = self.latest.max(now);
        texts.into_iter().filter(|text| self.is_unknown(text)).collect()
    }

    fn is_unknown(&mut self, text: &str) -> bool {
        let hash = blake3::hash(text.as_bytes());
        if self.known.contains(&hash) {
            return false;
        }
        if self.known.len() >= MAX_KNOWN {
            self.known.pop_front();
        }
        self.known.push_back(hash);
        true
    }

    /// Returns `true` if a valid command should be executed, which can happen once. `Err` has the reason of a refusal.
    pub(super) fn take(&mut self, command: &FleetCommand) -> Result<bool, &'static str> {
        let latest = self.latest;
        // Kept for longer than a command can be valid.
        self.executed.retain(|_, end| *end >= latest);
        if self.executed.contains_key(&command.id) || self.first.is_none_or(|first| command.signed_at() < first) {
            return Ok(false);
        }
        if !command.is_current(latest) {
            return Err("the command has ended, or ends too late");
        }
        if self.executed.len() >= MAX_EXECUTED {
            return Err("too many commands");
        }
        self.executed.insert(command.id.clone(), command.expires());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::FleetAction;
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn command(signed_at: u64) -> FleetCommand {
        FleetCommand::new("list", "ann".to_owned(), at(signed_at), FleetAction::Reload)
    }

    #[test]
    fn command_is_taken_once_until_its_end() {
        let (mut inbox, first) = (Inbox::default(), command(1_000));
        assert_eq!(inbox.read("redis".to_owned(), at(1_000), vec!["a".to_owned()]), ["a"]);
        assert_eq!([inbox.take(&first), inbox.take(&first)], [Ok(true), Ok(false)]);
        // The same text is not read again; a copy with another signature has the same id.
        assert!(inbox.read("redis".to_owned(), at(10_999), vec!["a".to_owned()]).is_empty());
        assert_eq!(inbox.take(&first), Ok(false));
        inbox.read("redis".to_owned(), at(11_001), Vec::new());
        assert!(inbox.take(&first).is_err(), "a replay after the end");
        inbox.read("redis".to_owned(), at(2_000), Vec::new());
        assert!(inbox.take(&first).is_err(), "a clock that was set back");
    }

    #[test]
    fn command_before_the_start_is_ignored() {
        let mut inbox = Inbox::default();
        inbox.read("redis".to_owned(), at(1_000), Vec::new());
        assert_eq!([inbox.take(&command(999)), inbox.take(&command(1_000))], [Ok(false), Ok(true)]);
    }

    #[test]
    fn forged_texts_do_not_fill_the_inbox() {
        let mut inbox = Inbox::default();
        for number in 0..2 * MAX_KNOWN {
            inbox.read("redis".to_owned(), at(1_000), vec![number.to_string()]);
        }
        assert_eq!(inbox.known.len(), MAX_KNOWN);
        assert_eq!(inbox.take(&command(1_000)), Ok(true));
    }
}
