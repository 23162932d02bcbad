//! The places of a cost in a response.

use std::fmt;

use http::HeaderName;
use serde::{Serialize, Serializer};

use tidegate_usage::{Api, Count, Format, Pointer, Weights};

/// The number in a response that is the cost of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageSource {
    /// The usage that this API reports.
    Api(Api),
    /// The usage in members of a JSON body, or of the events of a stream.
    Members(UsageMembers),
    /// The number in this header field of the response.
    Header(HeaderName),
    /// The bytes of the body.
    Bytes,
    /// The milliseconds from the time when the request is forwarded until the end of the response.
    Milliseconds,
}

/// The members of a JSON body that have the usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageMembers {
    members: Vec<(Count, Pointer)>,
    format: Format,
}

// === impl UsageSource ===

impl UsageSource {
    /// The word for [`Self::Bytes`] in the rule file.
    pub const BYTES: &'static str = "bytes";

    /// The word for [`Self::Milliseconds`] in the rule file.
    pub const MILLISECONDS: &'static str = "milliseconds";

    /// Returns the API whose requests are read, if there is one.
    pub fn api(&self) -> Option<Api> {
        if let Self::Api(api) = self { Some(*api) } else { None }
    }

    /// Returns `true` if the response reports tokens.
    pub fn counts_tokens(&self) -> bool {
        matches!(self, Self::Api(_) | Self::Members(_))
    }

    /// Returns `true` if the cost is in the body of the response. Otherwise it is known as soon as a client leaves.
    pub fn reads_body(&self) -> bool {
        self.counts_tokens()
    }

    /// Returns `true` if a part of the usage can be input.
    pub fn has_input(&self) -> bool {
        match self {
            Self::Api(_) => true,
            Self::Members(members) => members.has(Count::Input),
            Self::Header(_) | Self::Bytes | Self::Milliseconds => false,
        }
    }

    /// Returns `true` if a part of the usage can be output: each number that is not input.
    pub fn has_output(&self) -> bool {
        match self {
            Self::Members(members) => members.has(Count::Output) || members.has(Count::Total),
            Self::Api(_) | Self::Header(_) | Self::Bytes | Self::Milliseconds => true,
        }
    }

    /// Returns the most that a response costs which reports at most `total`, in permits.
    pub fn most(&self, weights: &Weights, total: u64) -> u64 {
        let input = if self.has_input() { weights.bound(total, 0) } else { 0 };
        let output = if self.has_output() { weights.bound(0, total) } else { 0 };
        input.max(output)
    }
}

/// Shows the source as `usage` has it in the rule file.
impl fmt::Display for UsageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(api) => f.write_str(api.name()),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Bytes => f.write_str(Self::BYTES),
            Self::Milliseconds => f.write_str(Self::MILLISECONDS),
            Self::Members(UsageMembers { members, .. }) => {
                for (position, (count, pointer)) in members.iter().enumerate() {
                    let start = if position == 0 { "{ " } else { ", " };
                    write!(f, "{start}{}: json:{pointer}", key(*count))?;
                }
                f.write_str(" }")
            }
        }
    }
}

impl Serialize for UsageSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Members(UsageMembers { members, .. }) => {
                serializer.collect_map(members.iter().map(|(count, pointer)| (key(*count), format!("json:{pointer}"))))
            }
            other => serializer.collect_str(other),
        }
    }
}

// === impl UsageMembers ===

impl UsageMembers {
    /// Creates the members with these numbers: input, output and total. Returns `None` if the pointers together are too long.
    pub fn new(members: Vec<(Count, Pointer)>) -> Option<Self> {
        let format = Format::custom(members.iter().map(|(count, pointer)| (*count, pointer.as_str()))).ok()?;
        Some(Self { members, format })
    }

    /// Returns the format of responses.
    pub fn format(&self) -> &Format {
        &self.format
    }

    fn has(&self, count: Count) -> bool {
        self.members.iter().any(|(own, _)| *own == count)
    }
}

/// Returns the key of a number in the rule file.
fn key(count: Count) -> &'static str {
    match count {
        Count::Input | Count::CachedInput | Count::CacheWrite | Count::ToolInput => "input",
        Count::Output | Count::Thoughts => "output",
        Count::Total => "total",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(members: &[(Count, &str)]) -> UsageSource {
        let parsed = members.iter().map(|(count, text)| (*count, Pointer::parse(text).expect("a pointer")));
        UsageSource::Members(UsageMembers::new(parsed.collect()).expect("few members"))
    }

    #[test]
    fn sources_are_shown_as_in_the_rule_file() {
        let both = members(&[(Count::Input, "/in"), (Count::Output, "/u/out")]);
        assert_eq!(both.to_string(), "{ input: json:/in, output: json:/u/out }");
        assert_eq!(UsageSource::Header(HeaderName::from_static("x-cost")).to_string(), "header:x-cost");
        assert_eq!(UsageSource::Api(Api::Gemini).to_string(), "gemini");
    }

    #[test]
    fn most_is_the_dearest_kind_that_can_occur() {
        let weights = Weights::new(5.0, 1.0, 1.0, 2.0).expect("valid");
        assert_eq!(members(&[(Count::Input, "/in"), (Count::Output, "/out")]).most(&weights, 10), 50);
        assert_eq!(members(&[(Count::Total, "/all")]).most(&weights, 10), 20);
        assert_eq!(members(&[(Count::Input, "/in")]).most(&weights, 10), 50);
        assert_eq!(UsageSource::Bytes.most(&weights, 10), 20);
    }
}
