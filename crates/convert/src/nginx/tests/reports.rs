//! Each setting has one finding.

use super::*;

#[test]
fn each_setting_has_one_finding() {
    let text = "user www; worker_processes 4; events { worker_connections 1024; }\nhttp { log_format a b; gzip on;\n\
         limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;\nserver { listen 80; auth_basic a;\n\
         location / { limit_req zone=one; proxy_pass http://a; auth_request /x; }\n\
         location /y { root /srv; }\n} }\nstream { server { listen 53; } }";
    let conversion = convert(text);
    insta::assert_snapshot!(conversion.report.to_string());
}

#[test]
fn inherited_settings_have_one_finding() {
    let conversion = convert(
        "http { proxy_read_timeout 10s; server { listen 80; location /a { proxy_pass http://a; } location /b { proxy_pass http://b; } } }",
    );
    assert_eq!(findings(&conversion, "proxy_read_timeout"), ["same: `timeouts`"]);
}

#[test]
fn equal_limits_share_a_bucket_and_have_findings() {
    let conversion = convert(
        "http { limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s; server { listen 80; \
         location /a { limit_req zone=one burst=9 delay=4; proxy_pass http://a; }\n\
         location /b { limit_req zone=one burst=9 delay=4; proxy_pass http://a; } } }",
    );
    assert_eq!(findings(&conversion, "limit_req zone"), ["same: `gcra` with a queue", "same: `gcra` with a queue"]);
    assert_eq!(conversion.rules.matches("limits: [one]").count(), 2);
}

#[test]
fn unused_settings_are_without_effect() {
    let conversion = convert(
        "http { limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s; limit_req zone=one; \
         server { listen 80; return 301 https://a.example/; location / { proxy_pass http://a; } } }",
    );
    assert_eq!(findings(&conversion, "limit_req zone"), ["same: without effect here: no request uses it"]);
    assert_eq!(findings(&conversion, "proxy_pass"), ["same: without effect here: no request uses it"]);
}

#[test]
fn rewrites_of_a_server_are_lost() {
    let conversion = convert("server { listen 80; rewrite ^/a/(.*)$ /b/$1 last; location / { proxy_pass http://a; } }");
    assert!(findings(&conversion, "rewrite")[0].starts_with("lost"));
}

#[test]
fn client_certificates_of_other_servers_are_lost() {
    let files = "ssl_certificate a.pem; ssl_certificate_key a.key;";
    let conversion = convert(&format!(
        "http {{ server {{ listen 443 ssl; {files} location / {{ proxy_pass http://a; }} }} \
         server {{ listen 443 ssl; server_name b.example; {files} ssl_client_certificate ca.pem; ssl_verify_client on; }} }}"
    ));
    assert!(findings(&conversion, "ssl_verify_client")[0].starts_with("lost"));
    assert!(!conversion.rules.contains("client_auth"));
}

#[test]
fn configuration_files_are_recognized() {
    use crate::nginx::recognizes;
    assert!(recognizes("a", "http {\n  server { listen 80; }\n}"));
    assert!(recognizes("a", "upstream a { server b; }"));
    assert!(!recognizes("a", "server:\n  - a: {b: 1};"));
    assert!(!recognizes("a", "services:\n- name: a"));
}

#[test]
fn servers_without_http_are_converted() {
    let conversion = convert(
        "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s; \
         server { listen 80; location / { limit_req zone=one; proxy_pass http://a; } }",
    );
    assert_eq!(lines(&conversion, "rate: 1, interval: 1s").len(), 1);
}
