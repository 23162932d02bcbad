//! The number in a response that is the cost: `usage` of `permits`.

use crate::check::names::{header_name, pointer};
use crate::check::{Checked, all};
use crate::file::UsageMembers as Members;
use crate::file::located::{Located, ValueOrMap};
use crate::problem::suggest::nearest;
use crate::problem::{Location, Problems, quote, quote_all};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::limits::usage_source::{UsageMembers, UsageSource};
use tidegate_usage::{Api, Count, Pointer};

/// The start of the name of a header field.
const HEADER: &str = "header:";

/// The start of a JSON pointer.
const JSON: &str = "json:";

/// Converts `usage`.
pub(super) fn usage_source(
    raw: &Located<ValueOrMap<String, Members>>,
    problems: &mut Problems,
) -> Checked<UsageSource> {
    match raw.required(problems)? {
        ValueOrMap::Value(text) => named(text, raw.location, problems),
        ValueOrMap::Map(raw) => members(raw, problems),
    }
}

/// Converts a word, or the name of a header field.
fn named(text: &str, at: Location, problems: &mut Problems) -> Checked<UsageSource> {
    if let Some(name) = text.strip_prefix(HEADER) {
        return header_name(name, at, problems).map(UsageSource::Header);
    }
    let word = text.to_ascii_lowercase();
    match (Api::from_name(&word), &*word) {
        (Some(api), _) => return Ok(UsageSource::Api(api)),
        (None, UsageSource::BYTES) => return Ok(UsageSource::Bytes),
        (None, UsageSource::MILLISECONDS) => return Ok(UsageSource::Milliseconds),
        _ => {}
    }
    let help = match nearest(text, words()) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => "for the number in a header field of the response write `header:NAME`, for members of its body \
             `{ input: json:/in, output: json:/out }`"
            .to_owned(),
    };
    let message = format!("`usage` must be one of {}, or `header:NAME`, not {}", quote_all(words()), quote(text));
    Err(problems.add(at, message, help))
}

/// The texts without a name.
fn words() -> impl Iterator<Item = &'static str> {
    Api::ALL.iter().map(|api| api.name()).chain([UsageSource::BYTES, UsageSource::MILLISECONDS])
}

/// Converts the members of a body.
fn members(Members { input, output, total }: &Members, problems: &mut Problems) -> Checked<UsageSource> {
    let present = [(Count::Input, input), (Count::Output, output), (Count::Total, total)];
    let present = present.into_iter().filter(|(_, raw)| raw.is_present());
    let found = all(present.map(|(count, raw)| member(raw, problems).map(|pointer| (count, pointer, raw.location))))?;
    for (position, (_, pointer, at)) in found.iter().enumerate() {
        if found[..position].iter().any(|(_, other, _)| other == pointer) {
            let message = format!("{} is two numbers", quote(&format!("{JSON}{pointer}")));
            return Err(problems.add(*at, message, "use one of them"));
        }
    }
    if found.is_empty() {
        let help = "add `total`, or `input` and `output`, for example `total: json:/usage/total_tokens`";
        return Err(problems.add(input.location, "`usage` needs at least one member", help));
    }
    let members = UsageMembers::new(found.into_iter().map(|(count, pointer, _)| (count, pointer)).collect());
    members.map(UsageSource::Members).ok_or_else(|| {
        problems.add(input.location, "the JSON pointers of `usage` have too many segments", "use shorter pointers")
    })
}

fn member(raw: &Located<String>, problems: &mut Problems) -> Checked<Pointer> {
    let text = raw.required(problems)?;
    match text.strip_prefix(JSON) {
        Some(text) => pointer(text, raw.location, problems),
        None => {
            let message = format!("{} is not a member of the response", quote(text));
            Err(raw.report(message, "write its JSON pointer, for example `json:/usage/input`", problems))
        }
    }
}

/// Reports a route whose limits read different numbers of responses.
pub(crate) fn check_single(limits: &[Limit], at: Location, problems: &mut Problems) -> Checked<()> {
    let mut sources = limits.iter().filter_map(|limit| Some(&limit.permits.usage()?.source));
    let Some(first) = sources.next() else { return Ok(()) };
    match sources.find(|source| *source != first) {
        None => Ok(()),
        Some(other) => {
            let [first, other] = [first, other].map(|source| quote(&source.to_string()));
            let message = format!("the limits of a route have one `usage`, not {first} and {other}");
            Err(problems.add(at, message, "use one of them, or distribute the limits over several routes"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::USAGE;

    #[test]
    fn schema_has_all_words() {
        let words: Vec<_> = words().collect();
        assert_eq!(USAGE, format!("^({}|{HEADER}.+)$", words.join("|")));
    }
}
