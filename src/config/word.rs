//! Holds single words of a tree against their kinds: text, names, numbers, durations, sizes.

use super::item::{Item, describe};
use super::node::Value;
use super::problem::{Broken, Problems, quote, quote_all};
use super::scalar::{Scalar, ScalarKind};
use super::suggest::nearest;
use super::units::{Bytes, Millis, unit};
use crate::limit::calendar::Unit;

/// What a name is.
pub(super) const NAME_HELP: &str = "a name is 1 to 64 letters, digits, `.`, `_` or `-`";

/// What a duration is.
const UNITS_HELP: &str = "a duration is `250ms`, `10s`, `1m`, `2h`, `1d`, or several units as in `1m30s`";

/// What a size is.
const SIZES_HELP: &str = "a size is `512B`, `16KiB`, `10MiB` or `1GiB`";

/// Is this the name of a route, a limit or an upstream? It goes into keys and labels as it is.
pub(super) fn is_name(text: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(valid)
}

// === impl Item ===

impl<'n> Item<'n> {
    pub(super) fn text(self, problems: &mut Problems) -> Result<&'n str, Broken> {
        let help = match self.scalar() {
            Some(Scalar { text, kind: ScalarKind::Text }) if text.trim().is_empty() => {
                return Err(self.wrong("must not be an empty text", "give it a value, or leave the key out", problems));
            }
            Some(Scalar { text, kind: ScalarKind::Text }) => return Ok(text),
            Some(Scalar { text, .. }) => {
                format!("to mean the text, put it in quotes: {}", quote(&format!("\"{text}\"")))
            }
            None => "write one word, or text in quotes".to_owned(),
        };
        Err(self.wrong(&format!("must be text, not {}", describe(self.node)), help, problems))
    }

    pub(super) fn text_or_number(self, problems: &mut Problems) -> Result<&'n str, Broken> {
        match self.scalar() {
            Some(Scalar { text, kind: ScalarKind::Int(_) | ScalarKind::Float }) => Ok(text),
            _ => self.text(problems),
        }
    }

    /// Text that is never shown.
    pub(super) fn secret(self, problems: &mut Problems) -> Result<&'n str, Broken> {
        match self.scalar() {
            Some(Scalar { text, kind: ScalarKind::Text }) if !text.trim().is_empty() => Ok(text),
            Some(_) => Err(self.wrong("must be a text that is not empty", "put it in quotes", problems)),
            None => self.text(problems),
        }
    }

    pub(super) fn name(self, problems: &mut Problems) -> Result<&'n str, Broken> {
        let text = self.text(problems)?;
        match is_name(text) {
            true => Ok(text),
            false => Err(self.wrong(&format!("must be a name, not {}", quote(text)), NAME_HELP, problems)),
        }
    }

    pub(super) fn word(self, built: &[&str], unbuilt: &[&str], problems: &mut Problems) -> Result<&'n str, Broken> {
        let text = self.text(problems)?;
        if built.contains(&text) {
            return Ok(text);
        }
        let words = match built {
            [word] => quote(word),
            words => format!("one of {}", quote_all(words.iter().copied())),
        };
        if unbuilt.contains(&text) {
            return Err(self.unbuilt(text, format!("use {words}"), problems));
        }
        let help = match nearest(text, built.iter().chain(unbuilt).copied()) {
            Some(word) => format!("did you mean {}?", quote(word)),
            None => format!("use {words}"),
        };
        Err(self.wrong(&format!("must be {words}, not {}", quote(text)), help, problems))
    }

    pub(super) fn flag(self, problems: &mut Problems) -> Result<bool, Broken> {
        let help = match self.scalar() {
            Some(Scalar { text, kind: ScalarKind::Bool }) => return Ok(text.eq_ignore_ascii_case("true")),
            Some(Scalar { text, kind: ScalarKind::Text }) if matches!(text.as_str(), "true" | "false") => {
                "write it without quotes"
            }
            _ => "write `true` or `false`",
        };
        Err(self.wrong(&format!("must be `true` or `false`, not {}", describe(self.node)), help, problems))
    }

    pub(super) fn whole(self, least: u64, most: u64, problems: &mut Problems) -> Result<u64, Broken> {
        let help = match self.scalar() {
            Some(Scalar { kind: ScalarKind::Int(number), .. }) => {
                match u64::try_from(*number).ok().filter(|number| (least..=most).contains(number)) {
                    Some(number) => return Ok(number),
                    None if *number > i128::from(most) => format!("the largest is {most}"),
                    None => format!("the smallest is {least}"),
                }
            }
            Some(Scalar { text, kind: ScalarKind::Text }) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                "write it without quotes".to_owned()
            }
            _ if self.key == "rate" => "`rate: 5` with `interval: 2s` is 2.5 in a second; write digits only".to_owned(),
            _ => "write digits only".to_owned(),
        };
        let message = format!("must be a whole number from {least} to {most}, not {}", describe(self.node));
        Err(self.wrong(&message, help, problems))
    }

    pub(super) fn duration(self, least: u64, most: u64, problems: &mut Problems) -> Result<&'n str, Broken> {
        let message = match self.scalar() {
            Some(Scalar { text, kind: ScalarKind::Text }) => match Millis::parse(text) {
                Some(Millis(millis)) if (least..=most).contains(&millis) => return Ok(text),
                Some(_) => {
                    let (least, most) = (Millis::show(least), Millis::show(most));
                    format!("must be from {least} to {most}, not {}", quote(text))
                }
                None => {
                    let guess = Millis::guess(text).map(|guess| format!("did you mean {}?", quote(&guess)));
                    let help = guess.unwrap_or_else(|| UNITS_HELP.to_owned());
                    return Err(self.wrong(&format!("must be a duration, not {}", quote(text)), help, problems));
                }
            },
            Some(Scalar { text, kind: ScalarKind::Int(number) }) if *number > 0 => {
                let help = format!("write `{number}ms`, `{number}s`, `{number}m`, `{number}h` or `{number}d`");
                return Err(self.wrong(&format!("must have a unit, not only {}", quote(text)), help, problems));
            }
            _ => format!("must be a duration, not {}", describe(self.node)),
        };
        Err(self.wrong(&message, UNITS_HELP, problems))
    }

    pub(super) fn size(self, least: u64, most: u64, problems: &mut Problems) -> Result<&'n str, Broken> {
        let message = match self.scalar() {
            Some(Scalar { text, kind: ScalarKind::Text }) => match Bytes::parse(text) {
                Some(Bytes(bytes)) if (least..=most).contains(&bytes) => return Ok(text),
                Some(_) => {
                    let (least, most) = (Bytes::show(least), Bytes::show(most));
                    format!("must be from {least} to {most}, not {}", quote(text))
                }
                None => format!("must be a size, not {}", quote(text)),
            },
            Some(Scalar { text, kind: ScalarKind::Int(number) }) if *number > 0 => {
                let help = format!("write `{number}B`, `{number}KiB`, `{number}MiB` or `{number}GiB`");
                return Err(self.wrong(&format!("must have a unit, not only {}", quote(text)), help, problems));
            }
            _ => format!("must be a size, not {}", describe(self.node)),
        };
        Err(self.wrong(&message, SIZES_HELP, problems))
    }

    /// A duration, or a unit of the calendar.
    pub(super) fn interval(self, least: u64, most: u64, problems: &mut Problems) -> Result<&'n str, Broken> {
        match self.scalar() {
            Some(Scalar { text, kind: ScalarKind::Text }) if unit(text).is_some() => Ok(text),
            Some(Scalar { text, kind: ScalarKind::Text }) if Millis::parse(text).is_none() => {
                let near = Millis::guess(text)
                    .or_else(|| nearest(text, Unit::ALL.into_iter().map(Unit::name)).map(str::to_owned));
                let help = near.map_or(UNITS_HELP.to_owned(), |near| format!("did you mean {}?", quote(&near)));
                Err(self.wrong(&format!("must be a duration, not {}", quote(text)), help, problems))
            }
            _ => self.duration(least, most, problems),
        }
    }

    /// A value that will be right one day.
    fn unbuilt(self, text: &str, help: impl Into<String>, problems: &mut Problems) -> Broken {
        problems.add(self.node.location, format!("`{}: {text}` is not built yet", self.key), help)
    }

    fn scalar(self) -> Option<&'n Scalar> {
        match &self.node.value {
            Value::Scalar(scalar) => Some(scalar),
            Value::List(_) | Value::Map(_) => None,
        }
    }
}
