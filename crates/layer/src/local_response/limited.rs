//! The body of a 429 response. Its JSON is written by hand, because under attack it is the most frequent response.

use tidegate_rules::limits::concurrency::Concurrency;

const BEFORE: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
    r#""title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":""#,
);

/// The `detail` of a request that the bound of its client rejects.
pub(super) const CLIENT_BUSY: &str = "the client has too many requests in flight";

/// The `detail` of a request that the bound of its route rejects.
pub(super) const ROUTE_BUSY: &str = "too many requests are in flight";

/// The names of the limits that rejected a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViolatedLimits {
    /// The names as the elements of a JSON array (RFC 8259 section 5), without its brackets.
    members: String,
    /// The fewest permits that remain in a bucket of these limits.
    remaining: u32,
}

/// Returns the problem details (RFC 9457, draft-ietf-httpapi-ratelimit-headers) and a newline for terminals.
pub(super) fn body(violated: &ViolatedLimits, retry_after: Option<u64>) -> Vec<u8> {
    let mut digits = itoa::Buffer::new();
    let [first, number, last] = detail(retry_after, &mut digits);
    [BEFORE, first, number, last, r#"","violated-policies":["#, &violated.members, "]}\n"].concat().into_bytes()
}

/// Returns the problem details of a request that `concurrency` rejects, and a newline for terminals.
pub(super) fn busy_body(by_client: bool, upstream: Option<&str>) -> Vec<u8> {
    let (kind, title, status, detail) = match by_client {
        true => {
            ("quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded", "429", CLIENT_BUSY)
        }
        false => {
            let title = "Request cannot be satisfied due to temporary server capacity constraints";
            ("temporary-reduced-capacity", title, "503", ROUTE_BUSY)
        }
    };
    let mut of_upstream = String::new();
    if let Some(name) = upstream {
        of_upstream.push_str(",\"upstream\":");
        push_name(&mut of_upstream, name);
    }
    let policy = Concurrency::POLICY;
    format!(
        "{{\"type\":\"https://iana.org/assignments/http-problem-types#{kind}\",\"title\":\"{title}\",\
         \"status\":{status},\"detail\":\"{detail}\",\"violated-policies\":[\"{policy}\"],\
         \"reason\":\"{policy}\"{of_upstream}}}\n"
    )
    .into_bytes()
}

/// Returns the text of `detail` in three parts.
pub(super) fn detail(retry_after: Option<u64>, digits: &mut itoa::Buffer) -> [&str; 3] {
    match retry_after {
        Some(seconds) => ["the same request will pass in ", digits.format(seconds), " s at the earliest"],
        None => ["the request costs more than the whole quota", "", ""],
    }
}

impl ViolatedLimits {
    /// Sets the permits that remain.
    pub fn with_remaining(self, remaining: u32) -> Self {
        Self { remaining, ..self }
    }

    pub(super) fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Returns the names. Only hooks need them; the response body uses the JSON.
    pub(super) fn names(&self) -> Vec<String> {
        serde_json::from_str(&format!("[{}]", self.members)).unwrap_or_default()
    }
}

impl<'n> FromIterator<&'n str> for ViolatedLimits {
    fn from_iter<I: IntoIterator<Item = &'n str>>(names: I) -> Self {
        let mut members = String::with_capacity(64);
        for name in names {
            if !members.is_empty() {
                members.push(',');
            }
            push_name(&mut members, name);
        }
        Self { members, remaining: 0 }
    }
}

/// Names in a rule file need no escaping, but a program can use any name.
fn push_name(members: &mut String, name: &str) {
    if name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\')) {
        members.extend(["\"", name, "\""]);
    } else {
        // The serialization of a string cannot fail.
        members.push_str(&serde_json::to_string(name).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn body_names_the_limits_and_the_retry_delay() {
        let body = |names: &[&str], retry_after| {
            String::from_utf8(super::body(&names.iter().copied().collect(), retry_after)).expect("text")
        };
        assert_eq!(
            body(&["per-ip", "total"], Some(7)),
            "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
             \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\"status\":429,\
             \"detail\":\"the same request will pass in 7 s at the earliest\",\
             \"violated-policies\":[\"per-ip\",\"total\"]}\n"
        );
        let never: Value = serde_json::from_str(&body(&["a"], None)).expect("JSON");
        assert_eq!(never["detail"], "the request costs more than the whole quota");
    }

    proptest! {
        #[test]
        fn body_is_valid_json_for_any_limit_name(
            names in prop::collection::vec(prop_oneof!["[A-Za-z0-9._-]{1,64}", any::<String>()], 0..4),
            retry_after: Option<u64>,
        ) {
            let violated: super::ViolatedLimits = names.iter().map(String::as_str).collect();
            prop_assert_eq!(&violated.names(), &names);
            let problem: Value = serde_json::from_slice(&super::body(&violated, retry_after)).expect("JSON");
            prop_assert_eq!(&problem["violated-policies"], &Value::from(names));
        }
    }
}
