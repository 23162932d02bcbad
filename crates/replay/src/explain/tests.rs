//! The steps of an evaluation, in their order.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use tidegate_config::AnyIdentities;
use tidegate_config::Config;
use tidegate_rules::evaluation::{Evaluation, Event, Step, Subject, Verdict};
use tidegate_rules::request::facts::HostRequirement;
use tidegate_rules::request::identity::{ApiKey, Identity, ServiceVerdict};

const RULES: &str = "
listen: 127.0.0.1:0
clients: { trusted_proxies: [10.0.0.0/8] }
identities: { keys: { header: X-Key, file: keys.yaml } }
upstreams: { api: { targets: ['http://127.0.0.1:1'] } }
routes:
  - { name: ask, match: { path: /ask }, authorize: {} }
  - { name: moved, match: { path: /moved }, redirect: { to: 'https://a.example/', status: 308 } }
  - name: api
    match: { path: /api }
    upstream: api
    cors: { origins: ['https://app.example'] }
    quota: /quota
    max_body: 1KiB
    require: keys
    reject: { status: 420, content_type: text/plain, body: slow }
    limits: [{ name: ip, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }]
  - { name: staff, match: { path: /staff, identity: { 'key:tier': gold } }, upstream: api }
  - { name: free, match: { path: /free }, upstream: api }
  - { name: asked, match: { path: /asked }, upstream: api, require: { service: 'http://auth/' } }
  - { name: both, match: { path: /both }, upstream: api, require: { keys: {}, service: 'http://auth/' } }
";

const VERDICTS: [Verdict; 4] = [Verdict::Granted, Verdict::Refused, Verdict::Busy, Verdict::StoreFailed];

/// Returns the steps of a request, if the limits decide so.
fn steps(method: &Method, target: &str, fields: &[(&'static str, &'static str)], verdict: Verdict) -> Vec<String> {
    let config = Config::parse_for_gateway(RULES, &AnyIdentities).expect("rules");
    let fields: HeaderMap =
        fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect();
    let uri: Uri = target.parse().expect("a target");
    let facts = config.rules.read(method, &uri, HostRequirement::Optional, &fields, "10.0.0.1".parse().ok());
    let mut evaluation = Evaluation::new(&config.rules, facts.expect("facts"), Subject::Request);
    let (mut event, mut steps) = (Event::Done, Vec::new());
    loop {
        let step = evaluation.next(std::mem::take(&mut event));
        let name = match &step {
            Step::Respond(answer) => format!("{answer:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
            step => format!("{step:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
        };
        steps.push(name);
        match step {
            Step::Found | Step::AdmitQuota | Step::Check(_) | Step::Identified(_) | Step::ReadBody(_) => {}
            Step::Verify(verified) => {
                let key = ApiKey::new("one", None, Arc::default(), []).map(Arc::new);
                evaluation.add_identity(Identity { key, verified, ..Identity::default() });
            }
            Step::Decide(_) => event = Event::Decided(verdict),
            Step::Ask(_) => event = Event::Asked(ServiceVerdict::Allowed),
            Step::Quota(_) | Step::Authorize(..) | Step::Unmatched | Step::Respond(_) | Step::Forward => return steps,
        }
    }
}

#[test]
fn steps_are_in_order() {
    let origin = ("origin", "https://app.example");
    let preflight = [origin, ("access-control-request-method", "GET")];
    for (method, target, fields, expected) in [
        (Method::GET, "/free", &[][..], "Found Check Decide Forward"),
        (Method::GET, "/api", &[], "Found Check Verify Identified Decide Forward"),
        (Method::GET, "/asked", &[], "Found Check Decide Ask Forward"),
        (Method::GET, "/both", &[], "Found Check Verify Identified Decide Ask Forward"),
        (Method::POST, "/api", &[("content-length", "1025")], "Found BodyTooLong"),
        (Method::OPTIONS, "*", &[], "Options"),
        (Method::OPTIONS, "/api", &preflight, "Found Preflight"),
        (Method::OPTIONS, "/api", &[("origin", "null"), preflight[1]], "Found OriginNotAllowed"),
        (Method::GET, "/quota", &[], "Found AdmitQuota Verify Identified Quota"),
        (Method::POST, "/quota", &[], "Found QuotaMethod"),
        (Method::GET, "/ask", &[], "Found Authorize"),
        (Method::GET, "/moved", &[], "Found Check Decide Configured"),
        (Method::GET, "/staff", &[], "Verify Unmatched"),
        (Method::OPTIONS, "/staff", &preflight, "Verify Unmatched"),
        (Method::GET, "/other", &[], "Unmatched"),
    ] {
        assert_eq!(steps(&method, target, fields, Verdict::Granted).join(" "), expected, "{method} {target}");
    }
}

#[test]
fn only_granted_requests_are_forwarded() {
    for verdict in VERDICTS {
        for target in ["/free", "/api", "/moved", "/asked"] {
            let steps = steps(&Method::GET, target, &[], verdict);
            let last = steps.last().map(String::as_str);
            let expected = match verdict {
                Verdict::Granted if target == "/moved" => "Configured",
                Verdict::Granted => "Forward",
                Verdict::Refused => "Refused",
                Verdict::Busy => "Busy",
                Verdict::StoreFailed => "StoreFailed",
            };
            assert_eq!(last, Some(expected), "{target}: {steps:?}");
        }
    }
}
