//! Explains which limit each descriptor of a call finds, and why.

use std::fmt;

use tidegate_config::{Config, Millis, quote};
use tidegate_limit::Mode;
use tidegate_service::{Call, CallError, Descriptor, Domain, Entry, FoundRule, Matched, NamedLimit, Rate, Trace};

/// A descriptor as the command line has it: `KEY=VALUE`, or several with commas. `\` makes a comma or a backslash a part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorText(Vec<(String, String)>);

/// A call to explain.
#[derive(Clone, Debug)]
pub struct ExplainedCall {
    /// The name of the domain.
    pub domain: String,
    /// The descriptors, at least one.
    pub descriptors: Vec<DescriptorText>,
}

/// How the descriptors of a call find their limits.
#[derive(Debug)]
pub struct CallExplanation<'c> {
    domain: &'c Domain,
    /// Each descriptor with the search for its limit.
    traces: Vec<(&'c DescriptorText, Trace<'c>)>,
}

/// Why a call cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainCallError {
    /// The rule file has no `service`.
    #[error("the rule file has no `service`")]
    NoService,
    /// There is no such domain.
    #[error("there is no domain {}: calls with this domain pass without limits", quote(.0))]
    UnknownDomain(String),
    /// The call exceeds a bound.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl ExplainedCall {
    /// Explains the call.
    ///
    /// # Errors
    /// The rules have no such domain, or the call exceeds a bound.
    pub fn explain<'c>(&'c self, config: &'c Config) -> Result<CallExplanation<'c>, ExplainCallError> {
        let service = config.service.as_ref().ok_or(ExplainCallError::NoService)?;
        self.call().validate()?;
        let unknown = || ExplainCallError::UnknownDomain(self.domain.clone());
        let domain = service.domains.get(&self.domain).ok_or_else(unknown)?;
        let traces = self.descriptors.iter().map(|text| (text, domain.trace(&text.entries()))).collect();
        Ok(CallExplanation { domain, traces })
    }

    /// Returns the call.
    pub fn call(&self) -> Call<'_> {
        let entries = self.descriptors.iter().map(DescriptorText::entries);
        let descriptors = entries.map(|entries| Descriptor { entries, ..Descriptor::default() }).collect();
        Call { domain: &self.domain, descriptors, hits_addend: 0 }
    }
}

impl CallExplanation<'_> {
    /// Returns `true` if a limit applies to a descriptor.
    pub fn is_limited(&self) -> bool {
        let limits = self.traces.iter().filter_map(|(_, trace)| trace.limit.as_ref());
        limits.filter(|limit| self.replacing(limit).is_none()).any(|limit| limit.rule.rate != Rate::Unlimited)
    }

    /// Returns the name of the limit that each descriptor finds.
    pub fn limits(&self) -> impl Iterator<Item = Option<&str>> {
        self.traces.iter().map(|(_, trace)| trace.limit.as_ref().map(|limit| limit.name))
    }

    /// Returns the name of a limit of the call that replaces this one.
    fn replacing(&self, limit: &NamedLimit<'_>) -> Option<&str> {
        let name = limit.rule.name.as_ref()?;
        let mut found = self.traces.iter().filter_map(|(_, trace)| trace.limit.as_ref());
        found.find(|other| other.rule.replaces.contains(name)).map(|other| other.name)
    }

    fn limit(&self, limit: &NamedLimit<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NamedLimit { name, rule, limit: bucket, .. } = limit;
        write!(f, "  limit {} of {}", quote(name), rule.location)?;
        if rule.shadow || self.domain.modes().shadow {
            write!(f, " (shadow)")?;
        }
        if rule.quota_mode || self.domain.modes().quota {
            write!(f, " (rejects only together with the other quotas of the call)")?;
        }
        writeln!(f, ": {}", describe_rate(limit))?;
        if let Some(other) = self.replacing(limit) {
            return writeln!(f, "  it does not apply to this call: {} replaces it", quote(other));
        }
        if let Some(bucket) = bucket {
            let scope = match bucket.mode() {
                Mode::Overall => "all descriptors that match share one bucket",
                Mode::PerClient => "these values have their own bucket",
            };
            writeln!(f, "  {scope}; without the store: {}", rule.on_store_failure.name())?;
        }
        Ok(())
    }
}

impl fmt::Display for CallExplanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "domain {}", quote(self.domain.name()))?;
        for (text, trace) in &self.traces {
            writeln!(f, "\n{text}")?;
            let bucket = trace.limit.as_ref().and_then(|found| found.limit);
            let has_clients = bucket.is_some_and(|limit| limit.mode() == Mode::PerClient);
            let mut rules = trace.rules.iter();
            for (key, value) in &text.0 {
                match rules.next() {
                    Some(rule) => writeln!(f, "  {}", describe_rule(*rule, has_clients))?,
                    None => {
                        writeln!(f, "  no rule matches {}", quote(&format!("{key}={value}")))?;
                        break;
                    }
                }
            }
            match &trace.limit {
                Some(limit) => self.limit(limit, f)?,
                None => writeln!(f, "  no limit: the descriptor passes")?,
            }
        }
        Ok(())
    }
}

/// Describes why a rule matches. `has_clients` is `true` if the limit has a bucket for each client.
fn describe_rule(FoundRule { name, matched, is_counted }: FoundRule<'_>, has_clients: bool) -> String {
    let reason = match matched {
        Matched::Exact => "it has this key and value",
        Matched::Wildcard => "it is the first one whose `*` matches",
        Matched::Key => "it has this key, and matches every value",
    };
    let counted = if is_counted && has_clients { "; each value is counted separately" } else { "" };
    format!("the rule {} matches: {reason}{counted}", quote(name))
}

fn describe_rate(NamedLimit { rule, limit, .. }: &NamedLimit<'_>) -> String {
    let Some(limit) = limit else {
        let all = if rule.rate == Rate::Unlimited { "all requests pass" } else { "all requests are rejected" };
        return all.to_owned();
    };
    let quota = &limit.limiter.quota;
    format!("{} in {} ({})", quota.rate(), Millis::show(quota.interval()), quota.algorithm().name())
}

impl DescriptorText {
    /// Creates a descriptor from its keys and values.
    pub fn new(entries: Vec<(String, String)>) -> Self {
        Self(entries)
    }

    /// Returns the keys and values.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Parses a descriptor.
    ///
    /// # Errors
    /// An entry has no `=`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let entry = |entry: String| match entry.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err("write KEY=VALUE, or KEY=VALUE,KEY=VALUE for several entries".to_owned()),
        };
        split(text).into_iter().map(entry).collect::<Result<_, _>>().map(Self)
    }

    fn entries(&self) -> Vec<Entry<'_>> {
        self.0.iter().map(|(key, value)| Entry { key, value }).collect()
    }
}

/// Splits a text at commas. The character after a backslash has no meaning.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut last, mut letters) = (Vec::new(), String::new(), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => last.extend(letters.next()),
            ',' => parts.push(std::mem::take(&mut last)),
            letter => last.push(letter),
        }
    }
    parts.push(last);
    parts
}

/// Displays the entries with commas.
impl fmt::Display for DescriptorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{}={}", key.escape_debug(), value.escape_debug())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_is_keys_and_values_with_commas() {
        let parse = |text| DescriptorText::parse(text).map(|text| text.0);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(parse("user=alice"), Ok(vec![pair("user", "alice")]));
        assert_eq!(parse("a=b=c,d="), Ok(vec![pair("a", "b=c"), pair("d", "")]));
        assert_eq!(parse(r"a=b\,c\\,d=e"), Ok(vec![pair("a", r"b,c\"), pair("d", "e")]));
        for text in ["", "user", "=x", "a=b,"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
