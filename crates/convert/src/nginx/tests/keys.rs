//! The keys of zones: variables, `map`, `geo`, and empty keys.

use super::*;

const WHITELIST: &str = "geo $limited { default 1; 10.0.0.0/8 0; 10.9.0.0/16 1; } \
     map $limited $key { 0 ''; 1 $binary_remote_addr; } \
     limit_req_zone $key zone=one:1m rate=1r/s;";

#[test]
fn servers_without_a_name_have_an_empty_key() {
    let zones = "limit_req_zone $server_name zone=one:1m rate=1r/s;";
    for (name, count) in [("", 0), ("server_name a.example;", 1)] {
        let server = format!("{name} location / {{ limit_req zone=one; proxy_pass http://a; }}");
        let conversion = convert(&format!("http {{ {zones} server {{ listen 80; {server} }} }}"));
        assert_eq!(lines(&conversion, "algorithm:").len(), count, "{name}\n{}", conversion.rules);
    }
}

#[test]
fn geo_and_map_leave_clients_out() {
    let conversion = convert(&with_limits(WHITELIST, "limit_req zone=one;"));
    let clients = ["10.0.0.1", "192.0.2.1", "10.9.0.1", "10.255.0.1", "2001:db8::1"];
    let trace: Vec<_> = clients.iter().flat_map(|client| [request(0, client, "/"), request(0, client, "/")]).collect();
    let charges = |request: &Request| {
        let is_free = matches!(request.client, IpAddr::V4(v4) if v4.octets()[0] == 10 && v4.octets()[1] != 9);
        let key = if is_free { String::new() } else { request.client.to_string() };
        vec![Charge { zone: "one", key, rate: 1_000, burst: 0 }]
    };
    assert_eq!(decisions(&conversion, &trace), of_nginx(&trace, charges));
    assert_eq!(findings(&conversion, "geo").len(), 1);
    assert!(!conversion.report.has_lost(), "{}", conversion.report);
}

#[test]
fn each_ipv6_address_is_a_client() {
    let zone = "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;";
    let conversion = convert(&with_limits(zone, "limit_req zone=one;"));
    let trace = [request(0, "2001:db8::1", "/"), request(0, "2001:db8::2", "/"), request(0, "2001:db8::1", "/")];
    assert_eq!(decisions(&conversion, &trace), [true, true, false]);
    assert_eq!(lines(&conversion, "ipv6_prefix: 128").len(), 1);
}

#[test]
fn composite_keys_have_several_parts() {
    let zone = "limit_req_zone $binary_remote_addr$uri zone=one:1m rate=1r/s;";
    let conversion = convert(&with_limits(zone, "limit_req zone=one;"));
    let trace = [
        request(0, "10.0.0.1", "/a"),
        request(0, "10.0.0.1", "/b"),
        request(0, "10.0.0.2", "/a"),
        request(0, "10.0.0.1", "/a?x=1"),
    ];
    assert_eq!(decisions(&conversion, &trace), [true, true, true, false]);
}

#[test]
fn parts_of_requests_become_clients() {
    for (key, client) in [
        ("$remote_addr", "client: ip"),
        ("$http_x_api_key", "client: header:x-api-key"),
        ("$cookie_session", "client: cookie:session"),
        ("$arg_token", "client: query:token"),
        ("$host", "client: host"),
        ("$binary_remote_addr$http_x_user", "client: [ip, header:x-user]"),
        ("$server_name", "mode: OVERALL"),
        ("constant", "mode: OVERALL"),
        ("$request_uri", "client: path"),
        ("$binary_remote_addr$request_method", "client: ip"),
    ] {
        let zone = format!("limit_req_zone {key} zone=one:1m rate=1r/s;");
        let conversion = convert(&with_limits(&zone, "limit_req zone=one;"));
        assert_eq!(lines(&conversion, client).len(), 1, "{key}\n{}", conversion.rules);
    }
    let zone = "limit_req_zone $http_x_api_key zone=one:1m rate=1r/s;";
    let conversion = convert(&with_limits(zone, "limit_req zone=one;"));
    assert_eq!(counting(&conversion, "GET", &[("x-api-key", "a")]), ["one"]);
    assert_eq!(counting(&conversion, "GET", &[]), [""; 0]);
}

#[test]
fn unknown_keys_are_lost() {
    let zone = "limit_req_zone $request_id zone=one:1m rate=1r/s;";
    let conversion = convert(&with_limits(zone, "limit_req zone=one;"));
    let lost = "lost: the key is not supported: `$request_id` cannot identify a client";
    assert_eq!(findings(&conversion, "limit_req_zone"), [lost]);
    assert_eq!(findings(&conversion, "limit_req zone"), ["lost: the key of its zone is not supported"]);
}

#[test]
fn map_of_header_fields_becomes_conditions() {
    let http = "map $http_x_tier $key { default $binary_remote_addr; gold ''; '~^internal-' ''; silver $http_x_user; } \
         limit_req_zone $key zone=one:1m rate=1r/s;";
    let conversion = convert(&with_limits(http, "limit_req zone=one;"));
    let count = |tier| counting(&conversion, "GET", &[("x-tier", tier), ("x-user", "u")]);
    assert_eq!(count("other"), ["one"]);
    assert_eq!(count("GOLD"), [""; 0]);
    assert_eq!(count("internal-7"), [""; 0]);
    assert_eq!(count("Silver"), ["one-2"]);
    assert_eq!(counting(&conversion, "GET", &[]), ["one"]);
    assert_eq!(counting(&conversion, "GET", &[("x-tier", "silver")]), [""; 0]);
}

#[test]
fn map_of_methods_and_paths_becomes_conditions() {
    let http = "map $request_method $writes { default ''; POST $binary_remote_addr; PUT $binary_remote_addr; } \
         map $uri $slow { default ''; ~^/reports/ $binary_remote_addr; } \
         limit_req_zone $writes zone=writes:1m rate=1r/s; limit_req_zone $slow zone=slow:1m rate=1r/s;";
    let conversion = convert(&with_limits(http, "limit_req zone=writes; limit_req zone=slow;"));
    assert_eq!(counting(&conversion, "POST", &[]), ["writes"]);
    assert_eq!(counting(&conversion, "GET", &[]), [""; 0]);
    let trace = ["/reports/1", "/reports/2", "/", "/"].map(|path| request(0, "10.0.0.1", path));
    assert_eq!(decisions(&conversion, &trace), [true, false, true, true]);
}

#[test]
fn connections_are_bounded_per_client_and_in_all() {
    let zones = "limit_conn_zone $binary_remote_addr zone=ip:1m; limit_conn_zone $server_name zone=all:1m;";
    let conversion = convert(&with_limits(zones, "limit_conn ip 10; limit_conn all 1000;"));
    assert_eq!(lines(&conversion, "concurrency: { per_client: 10, max: 1000 }").len(), 1, "{}", conversion.rules);
    let two = "limit_conn_zone $binary_remote_addr zone=ip:1m; limit_conn ip 5; \
         server { location /a { proxy_pass http://a; } location /b { proxy_pass http://b; } }";
    let conversion = convert(&format!("http {{ {two} }}"));
    assert!(
        findings(&conversion, "limit_conn ip")[0].starts_with("looser: nginx counts the routes of a zone together")
    );
}

#[test]
fn connections_in_a_dry_run_are_lost() {
    let zones = "limit_conn_zone $binary_remote_addr zone=ip:1m; limit_conn_dry_run on;";
    let conversion = convert(&with_limits(zones, "limit_conn ip 10;"));
    assert!(!conversion.rules.contains("concurrency"));
    assert!(conversion.report.has_lost());
}
