//! Routes whose protection is lost reject all requests.

use crate::Format;
use crate::testing::converted;

/// A file of a format, and whether the route `app` is open.
type Case = (Format, &'static str, String, bool);

fn nginx(server: &str, location: &str) -> String {
    let app = format!("location / {{ {location} proxy_pass http://127.0.0.1:9000; }}");
    format!("http {{ server {{ listen 80; {server} {app} }} }}")
}

fn certificates(own: &str) -> String {
    nginx(&format!("{own} ssl_verify_client on;"), "").replace("listen 80", "listen 443 ssl")
}

fn ingress(annotation: &str) -> String {
    let backend = "backend: { service: { name: app, port: { number: 80 } } }";
    let rules = format!("rules: [{{ http: {{ paths: [{{ path: /, pathType: Prefix, {backend} }}] }} }}]");
    let annotations = format!("annotations: {{ nginx.ingress.kubernetes.io/{annotation} }}");
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: app, {annotations} }}\nspec: {{ {rules} }}\n"
    )
}

fn kong(plugins: &str) -> String {
    let service = "services: [{ name: app, url: \"http://127.0.0.1:9000\", routes: [{ name: app, paths: [/] }] }]";
    format!("_format_version: \"3.0\"\n{service}\nplugins: {plugins}\n")
}

fn envoy(filter: &str, route: &str) -> String {
    let router = "{ name: router, typed_config: { \"@type\": envoy.extensions.filters.http.router.v3.Router } }";
    let routes = format!("[{{ match: {{ prefix: / }}, route: {{ cluster: app }}, {route} }}]");
    let hosts = format!("[{{ name: app, domains: [\"*\"], routes: {routes} }}]");
    let manager = format!("http_filters: [{filter}, {router}], route_config: {{ virtual_hosts: {hosts} }}");
    let filters = format!("[{{ name: x, typed_config: {{ \"@type\": HttpConnectionManager, {manager} }} }}]");
    let address = "address: { socket_address: { address: 0.0.0.0, port_value: 80 } }";
    let endpoint = "endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 9000 } } }";
    let cluster =
        format!("{{ name: app, load_assignment: {{ endpoints: [{{ lb_endpoints: [{{ {endpoint} }}] }}] }} }}");
    format!(
        "static_resources:\n  listeners: [{{ {address}, filter_chains: [{{ filters: {filters} }}] }}]\n  clusters: [{cluster}]\n"
    )
}

fn traefik(middleware: &str) -> String {
    let router = "app: { rule: \"PathPrefix(`/`)\", service: app, middlewares: [m], tls: {} }";
    let service = "app: { loadBalancer: { servers: [{ url: \"http://127.0.0.1:9000\" }] } }";
    format!("http:\n  routers: {{ {router} }}\n  services: {{ {service} }}\n  middlewares: {{ {middleware} }}\n")
}

fn spring(filter: &str, more: &str) -> String {
    let route =
        format!("{{ id: app, uri: \"http://127.0.0.1:9000\", predicates: [\"Path=/**\"], filters: [{filter}] }}");
    format!("spring:\n  cloud.gateway.routes: [{route}]\n{more}")
}

fn sentinel(strategy: &str) -> String {
    format!(
        "[{{\"resource\": \"/app\", \"limitApp\": \"a\", {strategy}}}, {{\"resource\": \"/b\", \"count\": 1, \"grade\": 1}}]"
    )
}

fn cases_of_nginx() -> Vec<Case> {
    let case = |server: &str, location: &str, is_open| (Format::Nginx, "root", nginx(server, location), is_open);
    // The first route rejects some requests.
    let second = |location: &str| (Format::Nginx, "root-2", nginx("", location), true);
    vec![
        case("", "", true),
        case("", "auth_basic app; auth_basic_user_file users;", false),
        case("auth_basic app;", "auth_basic off;", true),
        case("auth_request /auth;", "", false),
        case("", "access_by_lua_block { ngx.exit(403) }", false),
        case("ssl_verify_client on;", "", true),
        (Format::Nginx, "root", certificates("ssl_certificate a; ssl_certificate_key b;"), false),
        (Format::Nginx, "root", certificates(""), false),
        case("", "deny a.example;", false),
        second("allow 10.0.0.0/8; deny all; satisfy any; auth_basic app;"),
        case("", "satisfy any; auth_basic app;", false),
        case("", "if ($unknown != secret) { return 403; }", false),
        case("if ($unknown) { return 444; }", "", false),
        case("", "if ($unknown) { rewrite ^ /x; }", true),
        second("limit_except GET { auth_basic app; }"),
        second("allow 10.0.0.1; deny 10.0.0.0/8; allow all;"),
    ]
}

fn cases_of_ingress() -> Vec<Case> {
    let case = |annotation: &str, is_open| (Format::IngressNginx, "app", ingress(annotation), is_open);
    vec![
        case("limit-rps: \"1\"", true),
        case("auth-url: \"http://auth/\"", false),
        case("auth-type: basic", false),
        case("auth-tls-secret: default/ca", false),
        case("whitelist-source-range: a.example", false),
        case("whitelist-source-range: 10.0.0.0/8", true),
        case("configuration-snippet: \"deny all;\"", false),
        case("configuration-snippet: \"more_set_headers x;\"", true),
    ]
}

fn cases_of_kong() -> Vec<Case> {
    let case = |plugins: &str, is_open| (Format::Kong, "app", kong(plugins), is_open);
    vec![
        case("[{ name: prometheus }]", true),
        case("[{ name: key-auth }]", true),
        case("[{ name: key-auth }, { name: jwt }]", false),
        case("[{ name: jwt, enabled: false }]", true),
        case("[{ name: jwt, config: { anonymous: guest } }]", true),
        case("[{ name: hmac-auth }]", false),
        case("[{ name: acl, config: { allow: [a] } }]", false),
        case("[{ name: my-oidc }]", false),
        case("[{ name: ip-restriction, config: { allow: [10.0.0.0/8], deny: [10.1.0.1] } }]", true),
        case("[{ name: ip-restriction, config: { allow: [a.example] } }]", false),
    ]
}

fn cases_of_envoy() -> Vec<Case> {
    let case = |filter: &str, route: &str, is_open| (Format::Ratelimit, "app", envoy(filter, route), is_open);
    let authz = "{ name: authz, typed_config: { \"@type\": envoy.extensions.filters.http.ext_authz.v3.ExtAuthz } }";
    let jwt = |rules: &str| {
        format!(
            "{{ name: jwt, typed_config: {{ \"@type\": envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication, rules: [{rules}] }} }}"
        )
    };
    let rbac =
        "{ name: envoy.filters.http.rbac, typed_config: { \"@type\": envoy.extensions.filters.http.rbac.v3.RBAC } }";
    let off = "typed_per_filter_config: { authz: { disabled: true } }";
    let own = "typed_per_filter_config: { envoy.filters.http.rbac: { rbac: { rules: { action: DENY } } } }";
    vec![
        case("{ name: cors }", "name: app", true),
        case(authz, "name: app", false),
        case(authz, off, true),
        case(&jwt(""), "name: app", true),
        case(&jwt("{ match: { prefix: / }, requires: { provider_name: a } }"), "name: app", false),
        case(rbac, "name: app", true),
        case(rbac, own, false),
    ]
}

fn other_cases() -> Vec<Case> {
    let traefik = |middleware: &str, is_open| (Format::Traefik, "app", traefik(middleware), is_open);
    let spring = |filter: &str, more: &str, is_open| (Format::Spring, "app", spring(filter, more), is_open);
    let sentinel = |rule: &str, is_open| (Format::Sentinel, "app", sentinel(rule), is_open);
    let options =
        "x: { compress: {} }\ntls: { options: { default: { clientAuth: { clientAuthType: RequireAnyClientCert } } } }";
    let (_, _, by_certificates, _) = traefik("m: { compress: {} }", true);
    let by_certificates = format!("{by_certificates}{}", &options[options.find('\n').unwrap_or(0)..]);
    vec![
        traefik("m: { compress: {} }", true),
        traefik("m: { basicAuth: { users: [a] } }", false),
        traefik("m: { digestAuth: { users: [a] } }", false),
        traefik("m: { forwardAuth: { address: \"http://auth:9000/\" } }", true),
        traefik("m: { forwardAuth: { address: \"auth\" } }", false),
        traefik("m: { ipAllowList: { sourceRange: [10.0.0.0/8] } }", true),
        traefik("m: { ipAllowList: { sourceRange: [10.0.0.0/8], ipStrategy: { depth: 1 } } }", false),
        traefik("m: { plugin: { keycloakopenid: {} } }", false),
        traefik("other: { compress: {} }", false),
        (Format::Traefik, "app", by_certificates, false),
        spring("\"StripPrefix=0\"", "", true),
        spring("\"JwtAuth\"", "", false),
        spring("TokenRelay", "", false),
        spring("", "  security.oauth2.resourceserver.jwt: { issuer-uri: \"http://a\" }\n", false),
        sentinel("\"strategy\": 0", false),
    ]
}

#[test]
fn routes_without_their_protection_are_closed() {
    let cases = [cases_of_nginx(), cases_of_ingress(), cases_of_kong(), cases_of_envoy(), other_cases()].concat();
    for (format, name, text, is_open) in cases {
        let conversion = converted(format, [("file", &text)]);
        let has_name = |line: &&str| {
            let rest = line.trim_start().trim_start_matches("- ").trim_start_matches("{ ").strip_prefix("name: ");
            rest.and_then(|rest| rest.split([' ', ',']).next()) == Some(name)
        };
        let is_next = |line: &&str| line.starts_with("  - ");
        let mut lines = conversion.rules.lines().skip_while(|line| !has_name(line));
        let first = lines.next().unwrap_or_default();
        let route = [first].into_iter().chain(lines.take_while(|line| !is_next(line))).collect::<String>();
        let is_closed = route.contains("respond: { status: 403 } # closed: ");
        let found =
            (route.replace("# upstream: ", "").contains("upstream: "), is_closed, route.contains("# upstream: "));
        assert_eq!(
            found,
            (is_open, !is_open, !is_open),
            "{format}: {text}\n{}\n{}",
            conversion.rules,
            conversion.report
        );
        assert!(is_open || conversion.report.has_lost(), "{format}: {text}\n{}", conversion.report);
    }
}
