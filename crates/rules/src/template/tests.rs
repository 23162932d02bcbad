//! Templates: their grammar, and the escapes of values.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Uri};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::request::facts::Facts;
use crate::request::identity::{ApiKey, Claims, Identity};
use crate::request::path::{EncodedSlash, normalize};
use crate::route::Redirect;

const BODY: &str = r#"{"error":"slow down","retry_after":{retry_after}}"#;

fn parse(text: &str, escape: Escape) -> Template {
    Template::parse(text, escape).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

fn identity(claim: &str) -> Identity {
    let claims = json!({ "sub": claim, "https://id.example/plan": "pro", "n": 7, "list": [1] });
    let token = claims.as_object().cloned().map(|claims| Claims(claims).into());
    let key = ApiKey::new("team-1", None, Arc::default(), []).expect("a key");
    Identity { token, key: Some(key.into()), ..Identity::default() }
}

/// Renders a template for a request with this host, path and claim `sub`.
fn render(text: &str, escape: Escape, (host, path, sub): (&str, &str, &str)) -> Option<String> {
    let (method, uri, headers, identity) = (Method::GET, Uri::from_static("/"), HeaderMap::new(), identity(sub));
    let mut facts =
        Facts::read_unnormalized(&method, &uri, crate::request::facts::HostRequirement::Optional, &headers, None)
            .expect("facts");
    facts.host = host.into();
    facts.path = normalize(path, EncodedSlash::Keep).unwrap_or_else(|_| path.into());
    facts.query = Some("a=1&b=\"2\"");
    facts.identity = Some(Box::new(identity));
    let values = Values {
        route: "r",
        request_id: Some("id-1"),
        client: Some("2001:db8::1".parse().expect("an address")),
        facts: Some(&facts),
        retry_after: Some(7),
        limit: Some("per-ip"),
    };
    let template = parse(text, escape);
    let rendered = template.render(&values);
    if escape == Escape::Field {
        let value = rendered.clone().and_then(|text| HeaderValue::try_from(text).ok());
        assert_eq!(template.render_field(&values), value, "the value of a field differs from the text");
    }
    rendered
}

#[test]
fn braces_are_literal_unless_they_contain_a_name() {
    let text = |text| render(text, Escape::Json, ("a", "/p", "s")).expect("text");
    assert_eq!(text(BODY), r#"{"error":"slow down","retry_after":7}"#);
    assert_eq!(text(r#"{"a":{"b":{"c":{retry_after}}}}"#), r#"{"a":{"b":{"c":7}}}"#);
    assert_eq!(text(r#"{"a":"{limit}","b":{},"c":{ }}"#), r#"{"a":"per-ip","b":{},"c":{ }}"#);
    assert_eq!(text("{{limit}} { limit } {{limit {{ }}"), "{limit} { limit } {limit {{ }}");
    assert_eq!(text("function(a){return a} .b{color: red} {b"), "function(a){return a} .b{color: red} {b");
    assert_eq!(text("{jwt:https://id.example/plan} {jwt:n} {key:id}|{jwt:list}|{jwt:none}"), "pro 7 team-1||");
}

#[test]
fn unknown_names_are_errors() {
    for name in ["clientip", "client-ip", "Path", "jwt", "jwt:", "key:", "header:x", "a.b", "1"] {
        let error = Err(TemplateError::Unknown(name));
        assert_eq!(Template::parse(&format!("x{{{name}}}y"), Escape::Field), error, "{name}");
    }
}

#[test]
fn variables_without_a_closing_brace_are_errors() {
    for (text, name) in [
        ("{path", "path"),
        ("x{path/y", "path"),
        ("{path/{host}", "path"),
        ("{host, path}", "host"),
        ("{jwt:sub", "jwt:sub"),
        ("{key:id \"}", "key:id"),
    ] {
        for escape in [Escape::Field, Escape::Url, Escape::Json, Escape::Html, Escape::Text] {
            assert_eq!(Template::parse(text, escape), Err(TemplateError::Unclosed(name)), "{text}");
        }
    }
    for escape in [Escape::Field, Escape::Url] {
        for text in ["{paht", "x{paht/{host}"] {
            assert_eq!(Template::parse(text, escape), Err(TemplateError::Unclosed("paht")), "{text}");
        }
        for (text, literal) in
            [("{{path", "{path"), ("x{{paht/{{host}}", "x{paht/{host}"), ("{\"a\": 1}", "{\"a\": 1}")]
        {
            assert_eq!(parse(text, escape).parts(), [Part::Text(literal.into())], "{text}");
        }
    }
}

#[test]
fn values_are_escaped_for_their_place() {
    let hostile = "\"</script>\r\n{x}&'é";
    let render = |text, escape| render(text, escape, ("a.example", "/a%20b", hostile));
    assert_eq!(render("{jwt:sub}", Escape::Field), None);
    assert_eq!(render("x{jwt:none}", Escape::Field), None);
    assert_eq!(
        render("{client_ip} {request_id} {path}{query} {host} {route}", Escape::Field).as_deref(),
        Some("2001:db8::1 id-1 /a%20b?a=1&b=\"2\" a.example r")
    );
    assert_eq!(render("{jwt:sub}", Escape::Url).as_deref(), Some("%22%3C%2Fscript%3E%0D%0A%7Bx%7D%26%27%C3%A9"));
    assert_eq!(render("{path}{query}", Escape::Url).as_deref(), Some("/a%20b?a=1&b=%222%22"));
    assert_eq!(render("{jwt:sub}", Escape::Json).as_deref(), Some("\\\"</script>\\u000d\\u000a{x}&'é"));
    assert_eq!(render("{jwt:sub}", Escape::Html).as_deref(), Some("&quot;&lt;/script&gt;\r\n{x}&amp;&#39;é"));
}

#[test]
fn long_or_trimmed_field_values_are_absent() {
    let field = |sub: &str| render("{jwt:sub}", Escape::Field, ("a", "/", sub));
    assert_eq!([field(" admin"), field("admin\t"), field(""), field(&"x".repeat(9000))], [None, None, None, None]);
    assert_eq!(field("a b é").as_deref(), Some("a b é"));
}

#[test]
fn unknown_retry_delay_is_null_in_json() {
    let values = Values::default();
    assert_eq!(
        parse(BODY, Escape::Json).render(&values).as_deref(),
        Some(r#"{"error":"slow down","retry_after":null}"#)
    );
    assert_eq!(parse("{retry_after}", Escape::Text).render(&values).as_deref(), Some(""));
}

#[test]
fn content_types_have_escapes() {
    for (content_type, escape) in [
        ("application/json; charset=utf-8", Some(Escape::Json)),
        ("application/problem+json", Some(Escape::Json)),
        ("Text/HTML", Some(Escape::Html)),
        ("image/svg+xml", Some(Escape::Html)),
        ("text/plain", Some(Escape::Text)),
        ("text/javascript", None),
    ] {
        assert_eq!(Escape::of_content_type(content_type), escape, "{content_type}");
    }
}

#[test]
fn requests_cannot_choose_the_server_of_a_redirect() {
    let safe = |text| Redirect::has_safe_authority(&parse(text, Escape::Url));
    for text in [
        "https://example.com{path}{query}",
        "https://example.com/x/{jwt:sub}",
        "http://example.com:8080",
        "https://{host}{path}",
        "https://{host}:8443{path}",
        "https://{host}/x?from={path}",
        "https://[::1]:80/",
        "{path}",
        "/x/{path}",
        "/{jwt:sub}/x",
    ] {
        assert!(safe(text), "{text}");
    }
    for text in [
        "{jwt:sub}",
        "{host}{path}",
        "{query}",
        "//example.com",
        "/\\example.com",
        "https://{path}",
        "https://{jwt:sub}.example.com/",
        "https://{jwt:sub}",
        "https://example.com{query}",
        "https://example.com{jwt:sub}/",
        "https://user@example.com/",
        "https://user@{host}/",
        "https://{host}.evil.example/",
        "https://{host}{query}",
        "https://{host}:{jwt:port}/",
        "https:///x",
        "javascript:alert(1)",
        "ftp://example.com/",
        "https:example.com",
    ] {
        assert!(!safe(text), "{text}");
    }
}

fn location(to: &str, host: &str, path: &str, sub: &str) -> Option<HeaderValue> {
    let to = parse(to, Escape::Url);
    let redirect = Redirect { to, status: http::StatusCode::FOUND };
    let (method, uri, headers, identity) = (Method::GET, Uri::from_static("/"), HeaderMap::new(), identity(sub));
    let mut facts =
        Facts::read_unnormalized(&method, &uri, crate::request::facts::HostRequirement::Optional, &headers, None)
            .expect("facts");
    (facts.host, facts.path, facts.identity) = (host.into(), path.into(), Some(Box::new(identity)));
    redirect.location(&Values { facts: Some(&facts), ..Values::default() })
}

#[test]
fn redirects_without_a_host_are_not_sent() {
    // Browsers read `https:///evil.example/` as `https://evil.example/`.
    assert_eq!(location("https://{host}{path}", "", "/evil.example/", "x"), None);
    assert_eq!(location("/{jwt:none}/evil.example", "a", "/", "x").expect("a URL"), "/evil.example");
}

proptest! {
    /// A browser reads the location as a URL of the server that the rule names.
    #[test]
    fn locations_stay_on_their_server(path in "[/\\\\@.:?#%a-c\\x01\\x80]{0,12}", sub in any::<String>()) {
        for (to, server) in [
            ("https://example.com{path}", "https://example.com/"),
            ("https://{host}{path}", "https://a.example/"),
            ("{path}", "/"),
            ("/{path}", "/"),
            ("/{jwt:sub}{path}", "/"),
            ("/{jwt:sub}/{path}", "/"),
        ] {
            let Some(location) = location(to, "a.example", &path, &sub) else { continue };
            let location = location.to_str().expect("visible ASCII");
            prop_assert!(location.starts_with(server), "{} -> {}", to, location);
            prop_assert!(!location[server.len()..].starts_with(['/', '\\']), "{} -> {}", to, location);
            prop_assert!(location.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'), "{}", location);
        }
    }

    /// Values stay inside their JSON string, and a document stays valid.
    #[test]
    fn bodies_stay_valid_json(sub in any::<String>()) {
        let body = render(r#"{"sub":"{jwt:sub}","n":{retry_after}}"#, Escape::Json, ("a", "/", &sub)).expect("a body");
        let parsed: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        prop_assert_eq!(&parsed["sub"], &json!(sub));
    }

    #[test]
    fn field_values_are_valid(sub in any::<String>()) {
        let Some(value) = render("{jwt:sub}", Escape::Field, ("a", "/", &sub)) else { return Ok(()) };
        prop_assert_eq!(&value, &sub);
        prop_assert!(HeaderValue::from_str(&value).is_ok() || !value.is_ascii());
    }
}
