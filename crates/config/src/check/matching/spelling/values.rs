//! Values of header fields, query parameters, cookies and identities.

use super::Spelling;
use crate::problem::quote;
use tidegate_rules::route::ValueSource;

/// Signs of a regular expression that hardly any literal value has.
const REGEX: [&str; 13] = [".*", ".+", "(?", "\\d", "\\w", "\\s", "\\b", "\\.", "\\/", "[0-9]", "[a-z]", "[A-Z]", "[^"];

/// Words of other products in front of a pattern.
const OPERATORS: [&str; 10] =
    ["regex:", "regexp:", "re:", "glob:", "prefix:", "suffix:", "contains:", "exact:", "=~", "=="];

/// Fields whose lists clients send in many forms.
const LISTS: [&str; 5] = ["accept", "accept-language", "accept-encoding", "accept-charset", "cache-control"];

/// Words that mean a presence elsewhere.
const PRESENCE: [(&str, &str); 8] = [
    ("*", "present"),
    ("any", "present"),
    ("exists", "present"),
    ("required", "present"),
    ("missing", "absent"),
    ("not present", "absent"),
    ("none", "absent"),
    ("!*", "absent"),
];

/// Returns the right spelling of a literal value that is probably a pattern, or that clients hardly send.
pub(crate) fn of_value(text: &str, source: &ValueSource) -> Option<Spelling> {
    let text = text.trim();
    let field = match source {
        ValueSource::Header(name) => Some(name.as_str()),
        ValueSource::Query(_) | ValueSource::Cookie(_) | ValueSource::Json(_) => None,
    };
    // These have such values: entity tags, and media ranges with `*`.
    let is_literal = field.is_some_and(|name| {
        matches!(name, "if-match" | "if-none-match") || LISTS.contains(&name) && text.contains("/*")
    });
    if is_literal {
        return None;
    }
    let help = presence(text).or_else(|| operator(text)).or_else(|| expression(text)).or_else(|| wildcard(text));
    if let Some(help) = help.or_else(|| alternatives(text, field)) {
        return Some(Spelling::new(format!("{} matches only this text", quote(text)), help));
    }
    match source {
        ValueSource::Header(name) => of_field(text, name.as_str()),
        ValueSource::Query(_) => encoded(text),
        ValueSource::Cookie(_) if text.contains(';') => {
            let message = format!("{} has a `;`, which ends the value of a cookie", quote(text));
            Some(Spelling::new(message, "write the value of one cookie"))
        }
        ValueSource::Cookie(_) | ValueSource::Json(_) => None,
    }
}

/// Returns the right spelling of an item of a list that is a condition outside of a list.
pub(crate) fn of_item(text: &str) -> Option<Spelling> {
    let is_condition = matches!(text, "present" | "absent");
    is_condition.then(|| {
        Spelling::new(format!("{} is a value in a list", quote(text)), "as a condition, write it without a list")
    })
}

/// Returns the right spelling of a `prefix`, `suffix` or `contains` that is probably a pattern.
pub(crate) fn of_part(text: &str) -> Option<Spelling> {
    let help = match text.trim_matches('*') {
        inner if inner.len() < text.len() => format!("write {} without `*`", quote(inner)),
        _ => expression(text)?,
    };
    Some(Spelling::new(format!("{} matches only this text", quote(text)), help))
}

/// Returns the right spelling of a claim that is probably a path into a JSON document, or a list.
pub(crate) fn of_claim(claim: &str) -> Option<Spelling> {
    const MAPS_AND_LISTS: [&str; 7] =
        ["realm_access", "resource_access", "roles", "groups", "permissions", "scopes", "amr"];
    let help = "use a claim whose value is a text or a number: let the issuer add one to its tokens";
    if MAPS_AND_LISTS.contains(&claim.rsplit('/').next().unwrap_or_default()) && !claim.contains("://") {
        return Some(Spelling::new(
            format!("the claim {} is usually a list or a map, which has no value", quote(claim)),
            help,
        ));
    }
    of_nested_claim(claim)
}

/// Returns the right spelling of the claim of a condition, which may be a list.
pub(crate) fn of_tested_claim(claim: &str) -> Option<Spelling> {
    match claim {
        "realm_access" | "resource_access" => {
            let message = format!("the claim {} is usually a map, which has no value", quote(claim));
            Some(Spelling::new(message, "write a JSON pointer, such as `/realm_access/roles`"))
        }
        _ => of_nested_claim(claim),
    }
}

/// Returns the JSON pointer of a nested claim in another notation.
fn of_nested_claim(claim: &str) -> Option<Spelling> {
    let is_literal = claim.starts_with('/') || claim.contains("://");
    let is_path = claim.starts_with(['.', '$']) || claim.contains(['.', '[']);
    (is_path && !is_literal).then(|| {
        let names = claim.split(['.', '[', ']', '$', '"', '\'']).filter(|name| !name.is_empty());
        let pointer: String = names.flat_map(|name| ["/", name]).collect();
        let message = format!("{} is the name of one claim, not of a claim within another", quote(claim));
        Spelling::new(message, format!("write a JSON pointer: {}", quote(&pointer)))
    })
}

fn presence(text: &str) -> Option<String> {
    let (_, word) = PRESENCE.iter().find(|(other, _)| text.eq_ignore_ascii_case(other))?;
    Some(match *word {
        "present" => "to match any value, write `present`".to_owned(),
        _ => "to match requests without it, write `absent`".to_owned(),
    })
}

/// Returns the help for a text that starts with an operator.
fn operator(text: &str) -> Option<String> {
    if let Some(excluded) = text.strip_prefix('!').filter(|rest| !rest.is_empty()) {
        return Some(format!(
            "to exclude a value, put {} into `not` of the `match`",
            quote(excluded.trim_start_matches('='))
        ));
    }
    if let Some(expression) = text.strip_prefix('~') {
        let (expression, flag) = expression.strip_prefix('*').map_or((expression, ""), |rest| (rest, "(?i)"));
        return Some(regex(&format!("{flag}{}", expression.trim_start())));
    }
    let operator = OPERATORS.iter().find(|operator| text.len() > operator.len() && text.starts_with(**operator))?;
    let rest = text[operator.len()..].trim_start();
    Some(match *operator {
        "prefix:" | "suffix:" | "contains:" => part(operator.trim_end_matches(':'), rest),
        "exact:" | "==" => format!("write {}", quote(rest)),
        "glob:" => wildcard(rest).unwrap_or_else(|| format!("write {}", quote(rest))),
        _ => regex(rest),
    })
}

/// Returns the help for a regular expression: `/bot/i`, `^curl` or `.*bot.*`.
fn expression(text: &str) -> Option<String> {
    if let Some((inner, flags)) = text.strip_prefix('/').and_then(|text| text.rsplit_once('/'))
        && flags.bytes().all(|flag| b"gimsuxy".contains(&flag))
        && !inner.is_empty()
        && (!flags.is_empty() || REGEX.iter().any(|sign| inner.contains(sign)))
    {
        let flag = if flags.contains('i') { "(?i)" } else { "" };
        return Some(regex(&format!("{flag}{inner}")));
    }
    let is_regex =
        text.starts_with('^') || text.len() > 1 && text.ends_with('$') || REGEX.iter().any(|sign| text.contains(sign));
    is_regex.then(|| regex(text))
}

/// Returns the help for `*bot*`, `curl/*`, `*.example` or `%bot%`.
fn wildcard(text: &str) -> Option<String> {
    let (first, last) = (text.chars().next()?, text.chars().next_back()?);
    let is_sql = text.len() > 2 && first == '%' && last == '%';
    let stars = if is_sql { '%' } else { '*' };
    let inner = text.trim_matches(stars);
    if inner.is_empty() || inner.contains('*') {
        return (first == '*' || last == '*').then(|| regex(&format!("^{}$", text.replace('*', ".*"))));
    }
    match (first == stars, last == stars) {
        (true, true) => Some(part("contains", inner)),
        (false, true) if !is_sql => Some(part("prefix", inner)),
        (true, false) if !is_sql => Some(part("suffix", inner)),
        _ => None,
    }
}

/// Returns the help for several values in one text: `a|b`, or `a, b` in a field that is not a list.
fn alternatives(text: &str, field: Option<&str>) -> Option<String> {
    let is_word = |part: &&str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./+".contains(&byte))
    };
    let is_list =
        field.is_some_and(|name| LISTS.contains(&name) || matches!(name, "via" | "forwarded" | "x-forwarded-for"));
    let separators: &[char] = if is_list { &['|'] } else { &['|', ','] };
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let parts: Vec<_> = inner.split(separators).map(str::trim).collect();
    (parts.len() > 1 && parts.iter().all(is_word))
        .then(|| format!("for one of several values, write `[{}]`", parts.join(", ")))
}

/// Returns the right spelling of a value that clients usually send with more text.
fn of_field(text: &str, name: &str) -> Option<Spelling> {
    let (message, help) = match name {
        "content-type" if text.contains('/') && !text.contains(';') => {
            ("matches no type with parameters, such as `; charset=utf-8`", part("prefix", text))
        }
        "accept" | "accept-language" | "accept-encoding" | "accept-charset" | "cache-control"
            if !text.contains(',') =>
        {
            ("matches only a field with nothing else, and most clients send a list", part("contains", text))
        }
        "user-agent" if !text.contains(['/', ' ']) => {
            ("matches only a client that sends no version", part("contains", text))
        }
        "authorization" if !text.contains(' ') => {
            ("matches only a field without credentials", part("prefix", &format!("{text} ")))
        }
        "referer" | "origin" if !text.contains("://") && text != "null" => {
            ("has no scheme, and clients send one", part("contains", text))
        }
        "cookie" => ("matches only a field with exactly these cookies", "use `cookies` of the `match`".to_owned()),
        "host" => ("matches no HTTP/2 request, and no host with a port", "use `host` of the `match`".to_owned()),
        _ => return None,
    };
    Some(Spelling::new(format!("{} {message}", quote(text)), help))
}

/// Returns the right spelling of a query value that is percent-encoded: values are compared after decoding.
fn encoded(text: &str) -> Option<Spelling> {
    let decoded = tidegate_rules::client::spelling::decode(text.as_bytes()).ok()?;
    let decoded = str::from_utf8(&decoded).ok().filter(|decoded| text.contains('%') && *decoded != text)?;
    let message = format!("{} is compared with decoded values, and matches none", quote(text));
    Some(Spelling::new(message, format!("write {}", quote(decoded))))
}

fn part(key: &str, text: &str) -> String {
    format!("write `{{ {key}: {} }}`", yaml(text))
}

fn regex(expression: &str) -> String {
    format!("write `{{ regex: {} }}`", yaml(expression))
}

/// Quotes a text for the rule file, if necessary. There, `$$` is a dollar sign.
fn yaml(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
        && text.starts_with(|first: char| first.is_ascii_alphabetic());
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "''").replace('$', "$$")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(text: &str, source: &ValueSource) -> Option<String> {
        of_value(text, source).map(|spelling| spelling.help.into_owned())
    }

    fn field(name: &'static str) -> ValueSource {
        ValueSource::Header(http::HeaderName::from_static(name))
    }

    #[test]
    fn patterns_of_other_products_have_a_help() {
        for (text, expected) in [
            ("*bot*", "write `{ contains: bot }`"),
            ("curl/*", "write `{ prefix: curl/ }`"),
            ("*bot", "write `{ suffix: bot }`"),
            ("a*b*", "write `{ regex: '^a.*b.*$$' }`"),
            ("%bot%", "write `{ contains: bot }`"),
            ("^curl/.*", "write `{ regex: '^curl/.*' }`"),
            ("curl/.*", "write `{ regex: 'curl/.*' }`"),
            ("bot$", "write `{ regex: 'bot$$' }`"),
            ("~*bot", "write `{ regex: '(?i)bot' }`"),
            ("~ ^bot", "write `{ regex: '^bot' }`"),
            ("=~bot", "write `{ regex: bot }`"),
            ("/bot/i", "write `{ regex: '(?i)bot' }`"),
            ("regex:bot", "write `{ regex: bot }`"),
            ("prefix: curl", "write `{ prefix: curl }`"),
            ("(?i)bot", "write `{ regex: '(?i)bot' }`"),
            ("a|b", "for one of several values, write `[a, b]`"),
            ("a, b", "for one of several values, write `[a, b]`"),
            ("[a, b]", "for one of several values, write `[a, b]`"),
            ("!gold", "to exclude a value, put `gold` into `not` of the `match`"),
            ("!=gold", "to exclude a value, put `gold` into `not` of the `match`"),
            ("*", "to match any value, write `present`"),
            ("exists", "to match any value, write `present`"),
            ("missing", "to match requests without it, write `absent`"),
        ] {
            for source in [field("x-plan"), ValueSource::Query("q".into()), ValueSource::Cookie("c".into())] {
                assert_eq!(help(text, &source).as_deref(), Some(expected), "{text}");
            }
        }
    }

    #[test]
    fn literal_values_have_no_warning() {
        for (name, text) in [
            ("x-plan", "gold"),
            ("x-plan", "a-b_c.d/e+f:1"),
            ("x-url", "/home/"),
            ("x-url", "https://a.example/b?c=d&e=(f)"),
            ("x-text", "it's $5"),
            ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/1.0"),
            ("accept", "*/*"),
            ("accept", "text/html, application/json"),
            ("if-none-match", "*"),
            ("content-type", "application/json; charset=utf-8"),
            ("authorization", "Bearer abc="),
            ("date", "Tue, 15 Nov 1994 08:12:31 GMT"),
        ] {
            assert_eq!(help(text, &field(name)), None, "{name}: {text}");
        }
        assert_eq!(help("a+b", &ValueSource::Query("q".into())), None);
    }

    #[test]
    fn values_with_usual_additions_have_a_warning() {
        for (name, text, expected) in [
            ("content-type", "application/json", "write `{ prefix: application/json }`"),
            ("accept", "application/json", "write `{ contains: application/json }`"),
            ("user-agent", "curl", "write `{ contains: curl }`"),
            ("authorization", "Bearer", "write `{ prefix: 'Bearer ' }`"),
            ("cookie", "beta=1", "use `cookies` of the `match`"),
            ("host", "a.example", "use `host` of the `match`"),
            ("referer", "example.com", "write `{ contains: example.com }`"),
        ] {
            assert_eq!(help(text, &field(name)).as_deref(), Some(expected), "{name}: {text}");
        }
        assert_eq!(help("a%20b", &ValueSource::Query("q".into())).as_deref(), Some("write `a b`"));
    }

    #[test]
    fn claims_that_have_no_value_are_warned_about() {
        for claim in ["realm_access.roles", "roles", "$.sub", ".sub", "groups[0]", "/realm_access/roles"] {
            assert!(of_claim(claim).is_some(), "{claim}");
        }
        for claim in ["sub", "tier", "https://example.com/plan", "client_id"] {
            assert!(of_claim(claim).is_none(), "{claim}");
        }
    }
}
