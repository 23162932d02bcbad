//! Servers: names, listeners, TLS, upstreams and header fields.

use super::*;

#[test]
fn servers_are_selected_as_in_nginx() {
    let conversion = convert(
        "http { server { listen 80; server_name *.example.org; location / { proxy_pass http://wild; } } \
         server { listen 80; server_name www.example.org .example.net; location / { proxy_pass http://exact; } } \
         server { listen 80 default_server; server_name _; location / { proxy_pass http://default; } } \
         server { listen 80; server_name *.a.example.org ~^x\\d; location / { proxy_pass http://longer; } } }",
    );
    for (host, name) in [
        ("www.example.org", "exact"),
        ("example.net", "exact"),
        ("x.example.net", "exact"),
        ("y.example.org", "wild"),
        ("y.a.example.org", "longer"),
        ("example.org", "default"),
        ("other", "default"),
    ] {
        assert_eq!(upstream(&conversion, &format!("http://{host}/")), name, "{host}");
    }
    assert!(findings(&conversion, "server_name *.a.example.org")[0].starts_with("lost"));
}

#[test]
fn first_server_of_an_address_is_its_default() {
    let conversion = convert(
        "http { server { listen 80; server_name a.example; return 301 https://$host$request_uri; } \
         server { listen 443 ssl; server_name a.example; ssl_certificate a.pem; ssl_certificate_key a.key; \
         location / { proxy_pass http://a; } } \
         server { listen 443 ssl; server_name b.example; ssl_certificate b.pem; ssl_certificate_key b.key; \
         ssl_protocols TLSv1.3; location / { proxy_pass http://b; } } }",
    );
    insta::assert_snapshot!(conversion.rules);
}

#[test]
fn unmatched_paths_of_a_server_stay_with_it() {
    let conversion = convert(
        "http { server { listen 80; location / { proxy_pass http://default; } } \
         server { listen 80; server_name a.example; location /api/ { proxy_pass http://a; } } }",
    );
    assert_eq!(upstream(&conversion, "http://a.example/api/x"), "a");
    assert_eq!(upstream(&conversion, "http://a.example/x"), "404");
    assert_eq!(upstream(&conversion, "http://b.example/api/x"), "default");
}

#[test]
fn upstreams_have_weights_and_failures() {
    let conversion = convert(
        "http { upstream app { least_conn; server 10.0.0.1:8080 weight=3 max_fails=2 fail_timeout=20s; \
         server 10.0.0.2:8080; server 10.0.0.3:8080 backup; server 10.0.0.4:8080 down; keepalive 32; } \
         server { listen 80; location / { proxy_pass http://app; proxy_connect_timeout 5s; proxy_read_timeout 120; \
         proxy_send_timeout 2m; proxy_next_upstream error timeout http_502; } location /s { proxy_pass https://app; } } }",
    );
    insta::assert_snapshot!(crate::testing::shown(&conversion));
}

#[test]
fn header_fields_are_changed() {
    let conversion = convert(
        "http { proxy_set_header X-Outer 1; server { listen 80; add_header X-Frame-Options DENY always; location / { \
         proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr; proxy_set_header Accept-Encoding ''; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header Upgrade $http_upgrade; \
         proxy_set_header X-Time $msec; proxy_hide_header X-Powered-By; proxy_pass http://a; client_max_body_size 10m; } } }",
    );
    insta::assert_snapshot!(crate::testing::shown(&conversion));
}

#[test]
fn real_ip_becomes_trusted_proxies() {
    let conversion = convert(
        "http { set_real_ip_from 10.0.0.0/8; set_real_ip_from 192.0.2.7; real_ip_header X-Forwarded-For; real_ip_recursive on; \
         server { listen 80; location / { proxy_pass http://a; } } }",
    );
    assert_eq!(lines(&conversion, "trusted_proxies: [10.0.0.0/8, 192.0.2.7/32]").len(), 1, "{}", conversion.rules);
    assert!(!conversion.report.has_lost());
    let conversion = convert("http { set_real_ip_from 10.0.0.0/8; server { location / { proxy_pass http://a; } } }");
    assert!(findings(&conversion, "set_real_ip_from")[0].starts_with("lost: nginx reads the address from X-Real-IP"));
}

#[test]
fn addresses_of_listeners_are_parsed() {
    let conversion = convert(
        "http { server { listen 8080; listen [::]:8080; listen 127.0.0.1:9000; listen unix:/run/a.sock; listen localhost:9001; \
         listen example.com:80; listen 443 quic; listen 127.0.0.1:8080; location / { proxy_pass http://a; } } }",
    );
    let addresses: Vec<_> =
        lines(&conversion, "address:").concat().split("address: ").skip(1).map(str::to_owned).collect();
    assert_eq!(addresses.len(), 5, "{}", conversion.rules);
    assert_eq!(findings(&conversion, "listen 443 quic"), ["lost: HTTP/3 is not supported"]);
    assert_eq!(findings(&conversion, "listen 127.0.0.1:8080").len(), 1);
}

#[test]
fn variables_of_set_name_upstreams() {
    let conversion = convert(
        "http { server { listen 80; resolver 127.0.0.11; location / { set $up http://app:3000; proxy_pass $up; } \
         location /x { proxy_pass http://$http_x_backend; } } }",
    );
    assert!(conversion.rules.contains("http://app:3000"), "{}", conversion.rules);
    assert!(findings(&conversion, "proxy_pass http://$http_x_backend")[0].starts_with("lost: its server depends on"));
}

#[test]
fn texts_of_a_source_stay_one_value() {
    let conversion = convert(
        "http { server { listen 80; location / { add_header X-A 'a\" }\n- b: $$HOME # c' always; proxy_pass http://a; \
         add_header X-B '{path} ${x' ; } } }",
    );
    assert!(!conversion.rules.contains("\n- b"), "{}", conversion.rules);
}
