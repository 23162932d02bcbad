//! Reads scalar values: text, names, words, numbers, durations and sizes.

use std::borrow::Cow;

use crate::problem::suggest::nearest;
use crate::problem::{Checked, Problems, quote, quote_all};
use crate::values::units::{Bytes, Interval, Millis};
use crate::yaml::key_value::{KeyValue, describe};
use crate::yaml::scalar::{Scalar, ScalarKind};
use tidegate_limit::calendar::Unit;
use tidegate_limit::text::words::Word;

pub(super) const NAME_HELP: &str = "a name is 1 to 64 letters, digits, `.`, `_` or `-`";

const UNITS_HELP: &str = "a duration is `250ms`, `10s`, `1m`, `2h`, `1d`, or several units as in `1m30s`";

const SIZES_HELP: &str = "a size is `512B`, `16KiB`, `10MiB` or `1GiB`";

/// The longest name of other programs, in bytes.
pub(crate) const MAX_LABEL: usize = 1_024;

/// Returns `true` if this is a valid name of a route, a limit or an upstream. It is used in keys and labels without
/// escaping.
pub(crate) fn is_name(text: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(valid)
}

/// Splits a rate such as `5/m`, or `5r/m` as nginx has it, into the rate and the interval.
fn split_rate(text: &str) -> Option<(&str, String)> {
    let (rate, interval) = text.split_once('/')?;
    let rate = rate.trim().trim_end_matches('r');
    let is_number = !rate.is_empty() && rate.bytes().all(|byte| byte.is_ascii_digit());
    let interval = Millis::guess(interval).or_else(|| Millis::guess(&format!("1{}", interval.trim())))?;
    is_number.then_some((rate, interval))
}

// === impl KeyValue ===

impl<'n> KeyValue<'n> {
    pub(super) fn text(self, problems: &mut Problems) -> Checked<&'n str> {
        let help = match self.node.scalar() {
            Some(scalar) if scalar.is_text() && scalar.text.trim().is_empty() => {
                return Err(self.report(
                    "must not be an empty text",
                    "give it a value, or leave the key out",
                    problems,
                ));
            }
            Some(scalar) if scalar.is_text() => return Ok(&scalar.text),
            Some(Scalar { text, .. }) => {
                format!("to mean the text, put it in quotes: {}", quote(&format!("\"{text}\"")))
            }
            None => "write one word, or text in quotes".to_owned(),
        };
        Err(self.report(&format!("must be text, not {}", describe(self.node)), help, problems))
    }

    pub(super) fn text_or_number(self, problems: &mut Problems) -> Checked<&'n str> {
        match self.node.scalar() {
            Some(Scalar { text, kind: ScalarKind::Int(_) | ScalarKind::Float, .. }) => Ok(text),
            _ => self.text(problems),
        }
    }

    /// Returns a text, a whole number or a boolean, in the form that JSON has for it.
    pub(super) fn scalar(self, problems: &mut Problems) -> Checked<String> {
        match self.node.scalar() {
            Some(Scalar { kind: ScalarKind::Int(number), .. }) => Ok(number.to_string()),
            Some(Scalar { text, kind: ScalarKind::Bool, .. }) => Ok(text.to_ascii_lowercase()),
            _ => self.text(problems).map(str::to_owned),
        }
    }

    /// Returns a secret text, which no message repeats.
    pub(super) fn secret(self, problems: &mut Problems) -> Checked<&'n str> {
        match self.node.scalar() {
            Some(scalar) if scalar.is_text() && !scalar.text.trim().is_empty() => Ok(&scalar.text),
            Some(_) => Err(self.report("must be a text that is not empty", "put it in quotes", problems)),
            None => self.text(problems),
        }
    }

    pub(super) fn name(self, problems: &mut Problems) -> Checked<&'n str> {
        self.name_if(is_name, NAME_HELP, problems)
    }

    /// Returns the start of names, which may have colons.
    pub(super) fn prefix(self, problems: &mut Problems) -> Checked<&'n str> {
        let is_prefix = |text: &str| is_name(&text.replace(':', "_"));
        self.name_if(is_prefix, "a prefix is 1 to 64 letters, digits, `.`, `_`, `-` or `:`", problems)
    }

    /// Returns a name of other programs.
    pub(super) fn label(self, problems: &mut Problems) -> Checked<&'n str> {
        let is_label = |text: &str| text.len() <= MAX_LABEL && !text.contains(char::is_control);
        self.name_if(is_label, "a name has at most 1024 bytes, and no control characters", problems)
    }

    fn name_if(self, is_valid: impl Fn(&str) -> bool, help: &'static str, problems: &mut Problems) -> Checked<&'n str> {
        let text = self.text(problems)?;
        if self.node.is_secret() {
            let help = "write the name, or use a variable: `${NAME}`";
            return Err(self.report("must not come from a file: metrics and logs contain names", help, problems));
        }
        match is_valid(text) {
            true => Ok(text),
            false => Err(self.report(&format!("must be a name, not {}", quote(text)), help, problems)),
        }
    }

    pub(super) fn word(self, words: &[Word], problems: &mut Problems) -> Checked<&'n str> {
        let text = self.text(problems)?;
        let names = || words.iter().map(|word| word.name);
        if let Some(name) = names().find(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(name);
        }
        let all = quote_all(names());
        let help = match nearest(text, names()) {
            Some(word) => format!("did you mean {}?", quote(word)),
            None => format!("use one of {all}"),
        };
        Err(self.report(&format!("must be one of {all}, not {}", quote(text)), help, problems))
    }

    pub(super) fn flag(self, problems: &mut Problems) -> Checked<bool> {
        let help = match self.node.scalar() {
            Some(Scalar { text, kind: ScalarKind::Bool, .. }) => return Ok(text.eq_ignore_ascii_case("true")),
            Some(Scalar { text, kind: ScalarKind::Text, .. }) if matches!(text.as_str(), "true" | "false") => {
                "write it without quotes"
            }
            _ => "write `true` or `false`",
        };
        Err(self.report(&format!("must be `true` or `false`, not {}", describe(self.node)), help, problems))
    }

    pub(super) fn whole(self, min: u64, max: u64, problems: &mut Problems) -> Checked<u64> {
        let help = match self.node.scalar() {
            Some(Scalar { kind: ScalarKind::Int(number), .. }) => {
                match u64::try_from(*number).ok().filter(|number| (min..=max).contains(number)) {
                    Some(number) => return Ok(number),
                    None if i128::from(*number) > i128::from(max) => Cow::Owned(format!("the largest is {max}")),
                    None => format!("the smallest is {min}").into(),
                }
            }
            Some(Scalar { text, kind: ScalarKind::Text, .. }) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                "write it without quotes".into()
            }
            scalar if self.key == "rate" => match scalar.and_then(|scalar| split_rate(&scalar.text)) {
                Some((rate, interval)) => format!("write `rate: {rate}` and `interval: {interval}`").into(),
                None => "`rate: 5` with `interval: 2s` is 2.5 in a second; write digits only".into(),
            },
            _ => "write digits only".into(),
        };
        let message = format!("must be a whole number from {min} to {max}, not {}", describe(self.node));
        Err(self.report(&message, help, problems))
    }

    pub(super) fn decimal(self, max: u32, problems: &mut Problems) -> Checked<f64> {
        let number = self.node.scalar().and_then(|scalar| match scalar.kind {
            ScalarKind::Int(_) | ScalarKind::Float => scalar.text.parse::<f64>().ok(),
            _ => None,
        });
        number.filter(|number| (0.0..=f64::from(max)).contains(number)).ok_or_else(|| {
            let message = format!("must be a number from 0 to {max}, not {}", describe(self.node));
            self.report(&message, "write `0.1` for a tenth", problems)
        })
    }

    pub(super) fn duration(self, min: u64, max: u64, problems: &mut Problems) -> Checked<Millis> {
        let message = match self.node.scalar() {
            Some(Scalar { text, kind: ScalarKind::Text, .. }) => match Millis::parse(text) {
                Some(millis) if (min..=max).contains(&millis.0) => return Ok(millis),
                Some(_) => {
                    let (min, max) = (Millis::show(min), Millis::show(max));
                    format!("must be from {min} to {max}, not {}", quote(text))
                }
                None => {
                    let guess = Millis::guess(text).map(|guess| format!("did you mean {}?", quote(&guess)));
                    let help = guess.map_or(UNITS_HELP.into(), Cow::Owned);
                    return Err(self.report(&format!("must be a duration, not {}", quote(text)), help, problems));
                }
            },
            Some(Scalar { text, kind: ScalarKind::Int(number), .. }) if *number > 0 => {
                let help = format!("write `{number}ms`, `{number}s`, `{number}m`, `{number}h` or `{number}d`");
                return Err(self.report(&format!("must have a unit, not only {}", quote(text)), help, problems));
            }
            _ => format!("must be a duration, not {}", describe(self.node)),
        };
        Err(self.report(&message, UNITS_HELP, problems))
    }

    pub(super) fn size(self, min: u64, max: u64, problems: &mut Problems) -> Checked<Bytes> {
        let message = match self.node.scalar() {
            Some(Scalar { text, kind: ScalarKind::Text, .. }) => match Bytes::parse(text) {
                Some(bytes) if (min..=max).contains(&bytes.0) => return Ok(bytes),
                Some(_) => {
                    let (min, max) = (Bytes::show(min), Bytes::show(max));
                    format!("must be from {min} to {max}, not {}", quote(text))
                }
                None => format!("must be a size, not {}", quote(text)),
            },
            Some(Scalar { text, kind: ScalarKind::Int(number), .. }) if *number > 0 => {
                let help = format!("write `{number}B`, `{number}KiB`, `{number}MiB` or `{number}GiB`");
                return Err(self.report(&format!("must have a unit, not only {}", quote(text)), help, problems));
            }
            _ => format!("must be a size, not {}", describe(self.node)),
        };
        Err(self.report(&message, SIZES_HELP, problems))
    }

    /// Returns a duration or a calendar unit.
    pub(super) fn interval(self, min: u64, max: u64, problems: &mut Problems) -> Checked<Interval> {
        let text = match self.node.scalar() {
            Some(Scalar { text, kind: ScalarKind::Text, .. }) => text,
            _ => return self.duration(min, max, problems).map(Interval::Length),
        };
        if let Some(unit) = Unit::from_name(text) {
            return Ok(Interval::Unit(unit));
        }
        if Millis::parse(text).is_some() {
            return self.duration(min, max, problems).map(Interval::Length);
        }
        let near =
            Millis::guess(text).or_else(|| nearest(text, Unit::WORDS.iter().map(|word| word.name)).map(str::to_owned));
        let help = near.map_or(UNITS_HELP.into(), |near| Cow::Owned(format!("did you mean {}?", quote(&near))));
        Err(self.report(&format!("must be a duration, not {}", quote(text)), help, problems))
    }
}
