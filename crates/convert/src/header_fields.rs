//! Names of header fields that the rule file can read and change.

/// Fields that the rule file must not change: they frame or route a message, or the gateway sets them.
const FIXED: [&str; 17] = [
    "host",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "via",
    "expect",
    "content-length",
    "trailer",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "proxy-authenticate",
    "proxy-authorization",
];

/// Returns `true` for the name of a field.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 128
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Returns the name of a field in small letters.
pub(crate) fn name(text: &str) -> Option<String> {
    is_name(text).then(|| text.to_ascii_lowercase())
}

/// Returns the name of a field that the rule file can change, in small letters.
pub(crate) fn changeable(text: &str) -> Option<String> {
    name(text).filter(|name| !FIXED.contains(&name.as_str()))
}
