//! Hosts and methods.

/// Returns a host as the rule file writes it: `api.example.com`, or `*.example.com` for all hosts below it. Returns `None` if
/// the text is neither. A port is left out.
pub(crate) fn host(text: &str) -> Option<String> {
    let text = match text.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.contains(':') => host,
        _ => text,
    };
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        label.len() <= 63 && label.bytes().all(inner) && label.bytes().any(|byte| byte.is_ascii_alphanumeric())
    };
    let is_name = name.len() <= 253 && name.split('.').all(is_label);
    is_name.then(|| text.to_ascii_lowercase())
}

/// Returns the hosts that a regular expression with a literal end matches, such as `*.example.com` for
/// `^.+\.example\.com$`, or a single host. The pattern can match more hosts than the expression.
pub(crate) fn host_of_regex(regex: &str) -> Option<String> {
    let regex = regex.strip_prefix('^').unwrap_or(regex).strip_suffix('$')?;
    let plain = regex.replace("\\.", ".");
    let suffix_start =
        plain.rfind(|letter: char| !letter.is_ascii_alphanumeric() && !matches!(letter, '-' | '_' | '.'));
    let Some(start) = suffix_start else { return host(&plain) };
    // The name of a domain begins after the last pattern, with a dot.
    let suffix = plain[start..].trim_start_matches(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.');
    host(&format!("*{}", suffix.strip_prefix('.').map(|name| format!(".{name}"))?))
}

/// Returns a method that clients can send, in capital letters.
pub(crate) fn method(text: &str) -> Option<String> {
    let is_method =
        !text.is_empty() && text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
    let method = text.to_ascii_uppercase();
    (is_method && !matches!(method.as_str(), "ANY" | "ALL")).then_some(method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_all_hosts_below() {
        for (text, expected) in [
            ("API.example.com", Some("api.example.com")),
            ("*.example.com:8080", Some("*.example.com")),
            ("example.*", None),
            ("*", None),
            ("", None),
            ("a b", None),
        ] {
            assert_eq!(host(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn hosts_of_regexes_have_a_literal_end() {
        for (regex, expected) in [
            (r"^.+\.example\.com$", Some("*.example.com")),
            (r"^[a-z0-9-]+\.example\.com$", Some("*.example.com")),
            (r"^api\.example\.com$", Some("api.example.com")),
            (r"^(a|b)\.example\.com$", Some("*.example.com")),
            (r"^example\..+$", None),
            (r"example\.com", None),
        ] {
            assert_eq!(host_of_regex(regex).as_deref(), expected, "{regex}");
        }
    }
}
