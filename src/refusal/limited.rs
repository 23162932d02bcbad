//! The body of a 429, written by hand: under attack it is the answer that is made most.

const BEFORE: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
    r#""title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":""#,
);

/// The names of the limits that refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Violated {
    /// They are the members of a JSON array (RFC 8259 section 5).
    members: String,
}

/// The problem details (RFC 9457, draft-ietf-httpapi-ratelimit-headers), and a new line for who reads them in a terminal.
pub(super) fn body(violated: &Violated, retry_after: Option<u64>) -> Vec<u8> {
    let mut digits = itoa::Buffer::new();
    let [first, number, last] = detail(retry_after, &mut digits);
    [BEFORE, first, number, last, r#"","violated-policies":["#, &violated.members, "]}\n"].concat().into_bytes()
}

/// When the same request will pass, in three parts.
pub(super) fn detail(retry_after: Option<u64>, digits: &mut itoa::Buffer) -> [&str; 3] {
    match retry_after {
        Some(seconds) => ["the same request will pass in ", digits.format(seconds), " s at the earliest"],
        None => ["the request asks for more than the quota holds", "", ""],
    }
}

impl Violated {
    /// Returns the names again; for hooks, while the body of every 429 is made of their JSON.
    pub(super) fn names(&self) -> Vec<String> {
        serde_json::from_str(&format!("[{}]", self.members)).unwrap_or_default()
    }
}

impl<'n> FromIterator<&'n str> for Violated {
    fn from_iter<I: IntoIterator<Item = &'n str>>(names: I) -> Self {
        let mut members = String::with_capacity(64);
        for name in names {
            if !members.is_empty() {
                members.push(',');
            }
            push(&mut members, name);
        }
        Self { members }
    }
}

/// Those of a rule file need no escaping; a program may have called its limits anything.
fn push(members: &mut String, name: &str) {
    if name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\')) {
        members.extend(["\"", name, "\""]);
    } else {
        // A string can always be written.
        members.push_str(&serde_json::to_string(name).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn a_refusal_tells_when_to_come_back_and_who_refused() {
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
        assert_eq!(never["detail"], "the request asks for more than the quota holds");
    }

    proptest! {
        #[test]
        fn whatever_limits_are_called_the_body_is_json(
            names in prop::collection::vec(prop_oneof!["[A-Za-z0-9._-]{1,64}", any::<String>()], 0..4),
            retry_after: Option<u64>,
        ) {
            let violated: super::Violated = names.iter().map(String::as_str).collect();
            prop_assert_eq!(&violated.names(), &names);
            let problem: Value = serde_json::from_slice(&super::body(&violated, retry_after)).expect("JSON");
            prop_assert_eq!(&problem["violated-policies"], &Value::from(names));
        }
    }
}
