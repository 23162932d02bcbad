//! The `tidegate` binary: commands, exit codes, signals and logs.

use std::io::BufRead;
use std::time::Duration;

use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile, address, output, tidegate};
use crate::support::tls::Authority;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};

/// Returns rules with one origin and a limit of three requests in an hour.
fn rules(target: &str, more: &str) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
{more}
upstreams: {{ origin: {{ targets: ['{target}'] }} }}
routes:
  - {{ name: all, match: {{}}, upstream: origin, limits: [{{ name: l, mode: OVERALL, rate: 3, interval: 1h }}] }}\n"
    )
}

#[tokio::test]
async fn demo_starts_with_200_and_reaches_429() {
    let mut demo = Program::start(&mut tidegate(&["demo"]));
    let address = address(&mut demo.stdout, "http://");
    let mut client = Raw::connect(address).await;
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(get(&mut client, "/hello", "").await.status());
    }
    assert_eq!((statuses[0], statuses[19]), (200, 429), "{statuses:?}");
    demo.signal("TERM");
    let (status, rest) = demo.wait_for_exit();
    assert!(status.success(), "{rest}");
    assert!(rest.contains("/metrics") && rest.matches("curl").count() == 3, "{rest}");
}

#[test]
fn exit_codes_are_success_invalid_rules_and_failure() {
    let good = RuleFile::new("good", &rules("builtin:echo", ""));
    let bad = RuleFile::new("bad", "listen: nowhere\nroutes: []\n");
    let code = |arguments: &[&str]| output(arguments).status.code();
    assert_eq!(code(&["check", good.path()]), Some(0));
    assert_eq!(code(&["check", bad.path()]), Some(1));
    assert_eq!(code(&["check", "no/such/file.yaml"]), Some(2));
    assert_eq!(code(&["run", "-c", bad.path()]), Some(1));
    assert_eq!(code(&["run", bad.path()]), Some(1));
    assert_eq!(code(&["run", "-c", "no/such/file.yaml"]), Some(2));
    assert_eq!(code(&["run", "no/such/file.yaml"]), Some(2));
    assert_eq!(code(&["run", good.path(), "-c", good.path()]), Some(2));
    assert_eq!(code(&["explain", "-c", good.path(), "GET", "http://a.example/"]), Some(0));
    assert_eq!(code(&["explain", "-c", "-", "GET", "http://a.example/"]), Some(2)); // standard input is empty
    assert_eq!(code(&["run", "--no-such-flag"]), Some(2));
    assert_eq!(code(&["run", "--workers", "0"]), Some(2));
    assert_eq!(code(&["--help"]), Some(0));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = format!("127.0.0.1:{}", taken.local_addr().expect("an address").port());
    let occupied = std::net::TcpListener::bind(&taken);
    let file =
        RuleFile::new("taken", &rules("builtin:echo", "").replace("admin: 127.0.0.1:0", &format!("admin: {taken}")));
    let run = output(&["run", "-c", file.path()]);
    drop(occupied);
    assert_eq!(run.status.code(), Some(2));
    let error = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(error.contains(&format!("tidegate: cannot listen on {taken}: ")), "{error}");
}

/// Regression test: both gateways got half of the connections, and together granted twice the limit.
#[test]
fn port_of_another_gateway_is_an_error() {
    for (first, second) in [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("0.0.0.0", "127.0.0.1")] {
        let listening =
            |listen: &str| rules("builtin:echo", "").replace("listen: 127.0.0.1:0", &format!("listen: {listen}"));
        let file = RuleFile::new("listens", &listening(&format!("'{first}:0'")));
        let (_program, address, _) = Program::run(&file, &[]);
        let taken = format!("{second}:{}", address.port());
        for listen in [format!("'{taken}'"), format!("['127.0.0.1:0', '{taken}']")] {
            let file = RuleFile::new("listens-too", &listening(&listen));
            let mut program = Program::start(&mut tidegate(&["run", "-c", file.path()]));
            let mut error = String::new();
            program.stderr.read_line(&mut error).expect("text");
            let expected = format!("tidegate: cannot listen on {taken}: Address already in use");
            assert!(error.contains(&expected), "{listen}: {error}");
            assert_eq!(program.wait_for_exit().0.code(), Some(2), "{listen}");
        }
    }
}

/// Regression test: `check` accepted the rules, and `run` only logged a warning.
#[test]
fn tls_store_needs_a_trusted_authority() {
    let authority = Authority::new();
    let own = format!("tls: {{ ca: '{}' }}", authority.path("ca.pem"));
    let sentinel = |own: &str| format!("sentinel: {{ urls: ['rediss://127.0.0.1:26379'], master: m, {own} }}");
    for (store, code) in [
        ("url: 'rediss://localhost'".to_owned(), 1),
        (format!("url: 'rediss://localhost', {own}"), 0),
        ("cluster: ['rediss://localhost']".to_owned(), 1),
        (format!("{}, {own}", sentinel("")), 0),
        (format!("{}, tls: {{}}", sentinel(&own)), 1),
        (format!("{}, {own}", sentinel("tls: {}")), 1),
    ] {
        let file = RuleFile::new("untrusting", &rules("builtin:echo", &format!("store: {{ {store} }}")));
        let mut check = tidegate(&["check", file.path()]);
        let output = check.env("SSL_CERT_FILE", "nowhere").env("SSL_CERT_DIR", "nowhere").output().expect("output");
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{store}: {report}");
        assert_eq!(report.contains("the system trusts no authority"), code == 1, "{store}: {report}");
    }
}

/// Runs a gateway that fails to start with exit code 2. Returns its error output.
fn startup_error(file: &RuleFile, more: &[&str], log: &str) -> String {
    let arguments = [&["run", "-c", file.path()], more].concat();
    let run = tidegate(&arguments).env("TIDEGATE_LOG", log).output().expect("tidegate runs");
    assert_eq!(run.status.code(), Some(2), "{log}");
    String::from_utf8_lossy(&run.stderr).into_owned()
}

#[test]
fn invalid_log_filter_is_an_error_at_start() {
    // The rules are valid, but the access log cannot be opened: a gateway with a valid filter exits, too.
    let file =
        RuleFile::new("log-filter", &rules("builtin:echo", concat!("access_log: ", env!("CARGO_TARGET_TMPDIR"))));
    for (log, expected) in [
        ("inof", "did you mean `info`?"),
        ("tidegate", "`tidegate=debug`"),
        ("tidgate=debug", "did you mean `tidegate`?"),
        ("tidegate=loud", "`loud` is not a level"),
        ("info,,", "between two commas"),
    ] {
        let error = startup_error(&file, &[], log);
        assert!(error.contains("TIDEGATE_LOG") && error.contains(expected), "{log}: {error}");
    }
    for good in ["", "warn", "tidegate=debug", "info,tidegate::store=trace,h2=off"] {
        assert!(startup_error(&file, &[], good).contains("cannot open the access log"), "{good}");
    }
    let help = String::from_utf8_lossy(&output(&["run", "--help"]).stdout).into_owned();
    assert!(help.contains("TIDEGATE_LOG"), "{help}");
}

#[test]
fn error_names_the_path_that_cannot_be_opened() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let file = RuleFile::new("no-access-log", &rules("builtin:echo", &format!("access_log: {folder}")));
    let error = startup_error(&file, &[], "info");
    assert!(error.contains(&format!("cannot open the access log {folder}: ")), "{error}");
    let file = RuleFile::new("no-handover", &rules("builtin:echo", ""));
    let error = startup_error(&file, &["--handover", "/no/such/folder/h.sock"], "info");
    assert!(error.contains("cannot use the `--handover` socket /no/such/folder/h.sock: "), "{error}");
}

#[tokio::test]
async fn sigterm_fails_readiness_then_drains_requests() {
    let (arrived, mut arrival) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = tokio::sync::watch::channel(false);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let (arrived, mut released) = (arrived.clone(), released.clone());
        async move {
            conn.request().await;
            arrived.send(()).expect("sent");
            released.wait_for(|released| *released).await.expect("released");
            conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
        }
    })
    .await;
    let file = RuleFile::new("drain", &rules(&format!("http://{}", origin.address), ""));
    let (program, address, admin) = Program::run(&file, &["--drain-delay", "1", "--drain-timeout", "20"]);
    let (mut running, mut idle) = (Raw::connect(address).await, Raw::connect(address).await);
    running.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    soon(arrival.recv()).await.expect("the request arrives");

    program.signal("TERM");
    soon(async { while get(&mut Raw::connect(admin).await, "/readyz", "").await.status() != 503 {} }).await;
    soon(idle.closed()).await.expect("an idle connection is closed");
    soon(async { while tokio::net::TcpStream::connect(address).await.is_ok() {} }).await;
    release.send(true).expect("released");
    let response = soon(running.response(false)).await;
    assert_eq!((response.status(), response.text().as_str()), (200, "done"));
    let (status, rest) = program.wait_for_exit();
    assert!(status.success(), "{rest}");
}

#[tokio::test]
async fn access_log_has_each_request_but_no_secrets() {
    let file = RuleFile::new("access", &rules("builtin:echo", "access_log: stdout"));
    let (program, address, _admin) = Program::run(&file, &["--log-format", "json"]);
    let mut client = Raw::connect(address).await;
    let secrets = "Authorization: Bearer CANARY\r\nCookie: sid=CANARY\r\nX-Api-Key: CANARY\r\n";
    for _ in 0..4 {
        get(&mut client, "/a/path?token=CANARY", secrets).await;
    }
    program.signal("TERM");
    let (status, log) = program.wait_for_exit();
    assert!(status.success(), "{log}");
    assert!(!log.contains("CANARY"), "{log}");
    let lines: Vec<serde_json::Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let access: Vec<_> = lines.iter().filter(|line| line["limits"].is_string()).collect();
    assert_eq!(access.len(), 4, "{log}");
    assert_eq!((&access[0]["message"], &access[0]["status"]), (&"GET /a/path".into(), &200.into()), "{log}");
    assert_eq!((&access[0]["route"], &access[0]["limits"]), (&"all".into(), &"allowed".into()), "{log}");
    assert_eq!((&access[3]["status"], &access[3]["limits"]), (&429.into(), &"limited".into()), "{log}");
    let times: Vec<u64> = access.iter().filter_map(|line| line["at"].as_u64()).collect();
    assert!(times.len() == 4 && times.is_sorted() && times[0] > 1_700_000_000_000, "{log}");
    assert!(access[0]["ms"].is_f64() && access[0]["peer"] == "127.0.0.1", "{log}");
}

#[tokio::test]
async fn access_log_has_shadow_rejections() {
    let shadow = "rate: 3, interval: 1h, candidate: { rate: 1, interval: 1h }";
    let rules = rules("builtin:echo", "access_log: stdout").replace("rate: 3, interval: 1h", shadow);
    let file = RuleFile::new("shadow", &rules);
    let (program, address, _admin) = Program::run(&file, &["--log-format", "json"]);
    let mut client = Raw::connect(address).await;
    for _ in 0..4 {
        get(&mut client, "/", "").await;
    }
    program.signal("TERM");
    let (_, log) = program.wait_for_exit();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let limits: Vec<_> = lines.filter_map(|line| line["limits"].as_str().map(str::to_owned)).collect();
    assert_eq!(limits, ["allowed", "shadow_limited", "shadow_limited", "limited"], "{log}");
}

#[tokio::test]
async fn large_bodies_stream_both_ways_in_little_memory() {
    const LARGE: usize = 256 << 20;
    let origin = Origin::start(async |mut conn: OriginConnection| {
        // The origin echoes the body while it arrives.
        conn.head().await;
        conn.raw.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n")).await;
        let (mut reader, mut writer) = conn.raw.stream.split();
        _ = tokio::io::copy(&mut reader, &mut writer).await;
    })
    .await;
    let file = RuleFile::new("large", &rules(&format!("http://{}", origin.address), ""));
    let (program, address, _admin) = Program::run(&file, &["--workers", "1"]);
    let mut client = Raw::connect(address).await;
    let before = program.peak_memory();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n")).await;
    assert_eq!(client.head().await.expect("a head").status(), 200);
    let (mut reader, mut writer) = client.stream.into_split();
    let sending = tokio::spawn(async move {
        let mut body = tokio::io::AsyncReadExt::take(tokio::io::repeat(7), LARGE as u64);
        tokio::io::copy(&mut body, &mut writer).await.map(|_| writer)
    });
    let mut body = tokio::io::AsyncReadExt::take(&mut reader, LARGE as u64);
    let received =
        tokio::time::timeout(Duration::from_secs(60), tokio::io::copy(&mut body, &mut tokio::io::sink())).await;
    assert_eq!(received.expect("in time").expect("a body"), LARGE as u64);
    sending.await.expect("sent").expect("sent");
    let after = program.peak_memory();
    assert!(after < before + (16 << 20), "{before} bytes grew to {after}");
}
