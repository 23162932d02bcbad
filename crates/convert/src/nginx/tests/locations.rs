//! The precedence of locations, and the limits that they inherit.

use super::*;

fn located(locations: &str) -> Conversion {
    convert(&format!("http {{ server {{ listen 80; {locations} }} }}"))
}

#[test]
fn locations_are_selected_as_in_nginx() {
    let conversion = located(
        "location = / { proxy_pass http://exact; } \
         location / { proxy_pass http://root; } \
         location /docs/ { proxy_pass http://docs; } \
         location ^~ /images/ { proxy_pass http://images; } \
         location /images/large/ { proxy_pass http://large; } \
         location ~* \\.(gif|jpg)$ { proxy_pass http://pictures; } \
         location ~ ^/docs/.*\\.gif$ { proxy_pass http://never; } \
         location /docs/a/b { proxy_pass http://longest; }",
    );
    for (path, name) in [
        ("/", "exact"),
        ("/index.html", "root"),
        ("/docs/a", "docs"),
        ("/docs/a/bc", "longest"),
        ("/docs/x.GIF", "pictures"),
        ("/images/x.gif", "images"),
        ("/images/large/x.gif", "pictures"),
        ("/images/large/x.png", "large"),
        ("/docsx", "root"),
    ] {
        assert_eq!(upstream(&conversion, &format!("http://a.example{path}")), name, "{path}");
    }
    assert_eq!(findings(&conversion, "location ~ ^/docs/").len(), 1);
}

#[test]
fn nested_regexes_apply_within_their_prefix() {
    let conversion = located(
        "location /app/ { proxy_pass http://app; location ~ \\.php$ { proxy_pass http://php; } } \
         location ~ \\.php$ { proxy_pass http://other; } location / { proxy_pass http://root; }",
    );
    assert_eq!(upstream(&conversion, "http://a/app/x.php"), "php");
    assert_eq!(upstream(&conversion, "http://a/x.php"), "other");
    assert_eq!(upstream(&conversion, "http://a/app/x"), "app");
}

#[test]
fn inner_limits_replace_all_outer_ones() {
    let conversion = convert(
        "http { limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s; limit_req_zone $binary_remote_addr zone=b:1m rate=1r/s; \
         limit_req zone=a; server { listen 80; location / { proxy_pass http://x; } \
         location /b { limit_req zone=b burst=2 nodelay; proxy_pass http://x; } } }",
    );
    let trace = ["/", "/", "/b", "/b", "/b", "/b"].map(|path| request(0, "10.0.0.1", path));
    assert_eq!(decisions(&conversion, &trace), [true, false, true, true, true, false]);
}

#[test]
fn zone_is_one_bucket_for_all_of_its_locations() {
    let conversion = convert(
        "http { limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s; limit_req zone=a burst=1 nodelay; \
         server { listen 80; location / { proxy_pass http://x; } location /b { proxy_pass http://y; } } }",
    );
    let trace = ["/", "/b", "/", "/b"].map(|path| request(0, "10.0.0.1", path));
    assert_eq!(decisions(&conversion, &trace), [true, true, false, false]);
}

#[test]
fn returns_come_before_limits() {
    let conversion = convert(
        "http { limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s; limit_req zone=a; server { listen 80; \
         location / { proxy_pass http://x; } location /health { limit_req zone=a burst=1; return 200 'ok'; } } }",
    );
    let trace = ["/health", "/health", "/health", "/", "/"].map(|path| request(0, "10.0.0.1", path));
    assert_eq!(decisions(&conversion, &trace), [true, true, true, true, false]);
    let finding = "same: without effect: nginx responds before it counts the request";
    assert_eq!(findings(&conversion, "limit_req zone=a burst=1"), [finding]);
}

#[test]
fn named_locations_and_other_ifs_are_lost() {
    let conversion = located(
        "location / { if ($args ~ x) { set $a b; } proxy_pass http://x; error_page 502 = @down; } \
         location @down { proxy_pass http://y; }",
    );
    assert_eq!(findings(&conversion, "location @down"), ["lost: clients cannot request a named location"]);
    assert!(findings(&conversion, "if")[0].starts_with("lost"));
    assert_eq!(findings(&conversion, "error_page"), ["lost: not supported"]);
}

#[test]
fn conditions_with_a_return_become_routes() {
    let conversion = located(
        "if ($host = www.a.example) { return 301 https://a.example$request_uri; } \
         if ($http_user_agent ~* (curl|bot)) { return 403; } if ($request_method !~ ^(GET|POST)$) { return 405; } \
         location / { proxy_pass http://x; }",
    );
    assert!(!conversion.report.has_lost(), "{}", conversion.report);
    insta::assert_snapshot!(conversion.rules);
}

#[test]
fn paths_of_proxy_pass_replace_prefixes() {
    for (location, url, keys) in [
        ("/a/", "http://x/b/", "strip_prefix: /a, add_prefix: /b"),
        ("/a/", "http://x/", "strip_prefix: /a,"),
        ("/a", "http://x/b", "strip_prefix: /a, add_prefix: /b"),
        ("/a", "http://x/", "strip_prefix: /a,"),
        ("= /a", "http://x/b", "strip_prefix: /a, add_prefix: /b"),
        ("/", "http://x/b/", "add_prefix: /b"),
    ] {
        let conversion = located(&format!("location {location} {{ proxy_pass {url}; }}"));
        assert_eq!(lines(&conversion, keys).len(), 1, "{location} {url}\n{}", conversion.rules);
    }
    for url in ["http://x", "http://x$request_uri"] {
        let conversion = located(&format!("location /a/ {{ proxy_pass {url}; }}"));
        assert!(!conversion.rules.contains("prefix:  "), "{url}");
    }
    let conversion = located("location /a/ { proxy_pass http://x/b; }");
    assert!(findings(&conversion, "proxy_pass")[0].starts_with("lost"));
}

#[test]
fn rewrites_with_break_replace_prefixes() {
    let conversion = located("location /a/ { rewrite ^/a/(.*)$ /b/$1 break; proxy_pass http://x; }");
    assert_eq!(lines(&conversion, "strip_prefix: /a, add_prefix: /b").len(), 1);
    let conversion = located("location /a/ { rewrite ^/a/([0-9]+)$ /b?id=$1 last; proxy_pass http://x; }");
    assert!(findings(&conversion, "rewrite")[0].starts_with("lost"));
}

#[test]
fn denied_clients_get_403() {
    let conversion =
        located("location / { allow 10.0.0.0/8; deny all; proxy_pass http://x; } location /.git { deny all; }");
    assert!(conversion.rules.contains("not: { clients: 10.0.0.0/8 }"), "{}", conversion.rules);
    assert_eq!(lines(&conversion, "respond: { status: 403 }").len(), 2);
    let conversion = located("location / { deny 10.0.0.1; allow 10.0.0.0/8; deny all; proxy_pass http://x; }");
    assert!(findings(&conversion, "deny all")[0].starts_with("same"));
    assert_eq!(lines(&conversion, "clients: 10.0.0.1").len(), 1, "{}", conversion.rules);
    assert_eq!(lines(&conversion, "not: { clients: 10.0.0.0/8 }").len(), 1, "{}", conversion.rules);
}

#[test]
fn fallbacks_of_files_go_to_named_locations() {
    let conversion = located(
        "location / { limit_req zone=one; try_files $uri @app; } location @app { proxy_pass http://app; } \
         location /api { deny all; }",
    );
    assert_eq!(upstream(&conversion, "http://a/x"), "app");
    assert_eq!(findings(&conversion, "try_files"), ["lost: files are not served: all requests go to @app"]);
    assert_eq!(findings(&conversion, "location @app"), ["same: the requests of `try_files`"]);
    assert_eq!(findings(&conversion, "location /api"), ["same: "]);
}

#[test]
fn similar_patterns_leave_other_prefixes_alone() {
    let conversion = located(
        "location /api/store/ { proxy_pass http://store; } location ~ ^/api/\\d+/ { proxy_pass http://number; } \
         location / { proxy_pass http://root; }",
    );
    for (path, name) in [("/api/store/x", "store"), ("/api/7/x", "number"), ("/x", "root")] {
        assert_eq!(upstream(&conversion, &format!("http://a{path}")), name, "{path}");
    }
    assert!(findings(&conversion, "location ~")[0].starts_with("lost: its patterns are only similar"));
}
