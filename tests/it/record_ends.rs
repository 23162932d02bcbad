//! How recordings end, and the files of `tidegate record`.

use std::fs::Permissions;
use std::future::pending;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::admin_api::{Admin, TOKEN};
use crate::record::{RULES, Recorded, last_mark, start, start_at};
use crate::support::process::{Program, RuleFile, output, tidegate};
use crate::support::wire::raw::Raw;
use crate::support::wire::upstream::Origin;
use crate::support::wire::{soon, until};

/// Returns the notes of a replay.
fn notes(rules: &RuleFile, file: &Recorded, more: &[&str]) -> String {
    let replay = output(&[&["replay", "-c", rules.path(), "--json", file.path()], more].concat());
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    let report: Value = serde_json::from_slice(&replay.stdout).expect("JSON");
    report["notes"].to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_of_a_recording_counts_the_requests_it_lacks() {
    let silent = Origin::start(|mut connection| async move {
        connection.head().await;
        pending::<()>().await;
    });
    let silent = silent.await;
    let target = format!("  silent: {{ targets: ['http://{}'] }}\n", silent.address);
    let more = format!(
        "{RULES}  - name: silent
    match: {{ path: /silent }}
    upstream: silent
  - name: secret
    match: {{ path: /secret, headers: {{ authorization: 'Basic eDp5' }} }}
    upstream: echo
"
    );
    let rules = more.replacen(
        "upstreams: { echo: { targets: ['builtin:echo'] } }\n",
        &format!("upstreams:\n  echo: {{ targets: ['builtin:echo'] }}\n{target}"),
        1,
    );
    let admin = Admin::with_tokens("");
    admin.reload(&rules);
    let rules = RuleFile::new("record-ends", &rules);
    for (name, more) in [("unfinished", &["--for", "1h"][..]), ("unfinished-size", &["--max-size", "2KiB"])] {
        let file = Recorded::new(name);
        let program = start(&admin, &file, more).await;
        let address = admin.gateway().addresses()[0].tcp().expect("an address");
        let mut clients = Vec::new();
        silent.clear_requests();
        for _ in 0..2 {
            let mut client = Raw::connect(address).await;
            client.send("GET /silent HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
            clients.push(client);
        }
        until(|| silent.requests().len() == 2).await;
        // No value can replace the constant, so the request is dropped.
        assert_eq!(admin.request("/secret", "Authorization: Basic eDp5\r\n").await.status(), 200);
        admin.request("/header", "").await;
        until(|| file.requests().len() == 1).await;
        if more[0] == "--max-size" {
            for _ in 0..20 {
                admin.request("/header", "").await;
            }
        } else {
            program.signal("TERM");
        }
        let (status, summary) = program.wait_for_exit();
        let recorded = file.requests().len();
        let counted = if recorded == 1 { "request" } else { "requests" };
        let mark = last_mark(&file.text());
        assert_eq!((&mark["dropped"], &mark["end"]), (&json!(1), &json!(true)));
        // At the maximum size, the recording can end while one more request is in flight.
        let unfinished = mark["unfinished"].as_u64().expect("a number");
        assert!(unfinished == 2 || unfinished == 3 && more[0] == "--max-size", "{mark}");
        let counts = format!(
            "recorded {recorded} {counted} in {} bytes; 1 more was dropped; {unfinished} were in flight",
            file.text().len()
        );
        assert!(status.success() && summary.contains(&counts), "{summary}");
        let (notes, in_flight) = (notes(&rules, &file, &[]), format!("lacks {unfinished} requests in flight"));
        assert!(notes.contains(&in_flight) && notes.contains("lacks 1 request:"), "{notes}");
        assert!(!notes.contains("no end"), "{notes}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recordings_are_ended_by_their_id_and_a_token() {
    let admin = Admin::with_tokens("");
    admin.reload(RULES);
    let [first, second] = ["id-1", "id-2"].map(Recorded::new);
    let [one, other] = [start(&admin, &first, &[]).await, start(&admin, &second, &[]).await];
    let path = |file: &Recorded| format!("record/{}", last_mark(&file.text())["id"].as_str().expect("an id"));
    assert_ne!(path(&first), path(&second));
    assert_eq!(admin.api("DELETE", &path(&first), "").await.0, 401);
    assert_eq!(admin.change("record/0123").await.0, 404);
    assert_eq!(admin.change(&path(&first)).await.0, 200);
    let (status, summary) = one.wait_for_exit();
    assert!(status.code() == Some(2) && summary.contains("an operator has ended the recording"), "{summary}");
    assert_eq!(last_mark(&first.text())["early"], true);
    assert_eq!(admin.change(&path(&first)).await.0, 404);
    assert_eq!(last_mark(&second.text())["end"], false);
    other.signal("TERM");
    assert!(other.wait_for_exit().0.success());
    let audit = admin.api("GET", "audit", "").await.1;
    let ended = audit.as_array().expect("a list").iter().filter(|entry| entry["action"] == "end_recording");
    let ended: Vec<_> = ended.map(|entry| format!("record/{}", entry["target"].as_str().expect("an id"))).collect();
    assert_eq!(ended, [path(&second), path(&first)]);
    // Without requests, a recording is still a log.
    let rules = RuleFile::new("record-empty", RULES);
    assert_eq!(notes(&rules, &first, &[]), "[]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_of_a_killed_gateway_is_replayed() {
    let (tokens, file) = (Recorded::new("killed-tokens"), Recorded::new("killed"));
    std::fs::write(tokens.path(), format!("ann:{TOKEN}\n")).expect("written");
    let admin = format!("admin: {{ address: '127.0.0.1:0', tokens: {{ file: {} }} }}", tokens.path());
    let rules = RuleFile::new("record-killed", &format!("listen: 127.0.0.1:0\n{admin}\n{RULES}"));
    let (gateway, address, admin) = Program::run(&rules, &[]);
    let program = start_at(&admin.to_string(), &file, &[]).await;
    let request = "GET /header HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(Raw::connect(address).await.ask(request).await.status(), 200);
    until(|| file.requests().len() == 1).await;
    gateway.signal("KILL");
    let (status, summary) = program.wait_for_exit();
    assert!(status.code() == Some(2) && summary.contains("recorded 1 request in"), "{summary}");
    assert!(summary.contains("the connection to the gateway is lost"), "{summary}");
    let notes = notes(&rules, &file, &[]);
    assert!(file.text().ends_with('\n') && notes.contains("has no end"), "{notes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_ends_the_recording() {
    let admin = Admin::with_tokens("");
    let address = admin.gateway().admin_address().expect("an address").to_string();
    let arguments = ["record", "--admin", &address, "-o", "/dev/full"];
    let output = tidegate(&arguments).env("TIDEGATE_TOKEN", TOKEN).output().expect("it runs");
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code() == Some(2) && errors.starts_with("tidegate: /dev/full: "), "{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn size_below_the_first_line_is_rejected() {
    let admin = Admin::with_tokens("");
    let address = admin.gateway().admin_address().expect("an address").to_string();
    let arguments = ["record", "--admin", &address, "--max-size", "600B"];
    let output = tidegate(&arguments).env("TIDEGATE_TOKEN", TOKEN).output().expect("it runs");
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code() == Some(2) && errors.contains("--max-size is too small"), "{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_values_are_recorded_in_whole_lines() {
    let admin = Admin::with_tokens("");
    admin.reload(RULES);
    let file = Recorded::new("hostile");
    let program = start(&admin, &file, &[]).await;
    let address = admin.gateway().addresses()[0].tcp().expect("an address");
    let long = "secret".repeat(2_500);
    let mut sent = 0;
    let values = [&b"secret\xff\xfe"[..], b"\"secret\\\"", b"secret\t{}", "secret\u{2028}".as_bytes(), long.as_bytes()];
    for value in values {
        for (path, field) in [("/header", "X-Api-Key: "), ("/cookie", "Cookie: session=")] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{field}");
            let request = [head.as_bytes(), value, b"\r\n\r\n"].concat();
            let status = Raw::connect(address).await.ask(request).await.status();
            // Requests without a decision are omitted.
            sent += usize::from([200, 429].contains(&status));
        }
    }
    let folded = "GET /header HTTP/1.1\r\nHost: a.example\r\nX-Api-Key: a\r\n secret\r\n\r\n";
    assert_eq!(Raw::connect(address).await.ask(folded).await.status(), 400);
    assert!(sent >= values.len(), "{sent}");
    until(|| file.requests().len() == sent).await;
    program.signal("TERM");
    let (status, summary) = program.wait_for_exit();
    assert!(status.success() && summary.starts_with(&format!("recorded {sent} requests")), "{summary}");
    assert!(!summary.contains("dropped") && !file.text().contains("secret"), "{summary}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_file_is_replaced_only_by_force() {
    let admin = Admin::with_tokens("");
    let file = Recorded::new("existing");
    std::fs::write(file.path(), "before\n").expect("written");
    std::fs::set_permissions(file.path(), Permissions::from_mode(0o644)).expect("a mode");
    let address = admin.gateway().admin_address().expect("an address").to_string();
    let arguments = ["record", "--admin", &address, "--for", "1ms", "-o", file.path()];
    let run = |more: &[&str]| {
        let output = tidegate(&[&arguments, more].concat()).env("TIDEGATE_TOKEN", TOKEN).output().expect("it runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let mode = || std::fs::metadata(file.path()).expect("a file").permissions().mode() & 0o777;
    let (code, errors) = run(&[]);
    assert!(code == Some(2) && errors.contains("--force"), "{errors}");
    assert_eq!((file.text().as_str(), mode()), ("before\n", 0o644));
    let (code, errors) = run(&["--force"]);
    assert_eq!((code, mode()), (Some(0), 0o600), "{errors}");
    assert!(file.text().starts_with("{\"recording\""), "{}", file.text());
    std::fs::remove_file(file.path()).expect("removed");
    let (code, errors) = run(&[]);
    assert_eq!((code, mode()), (Some(0), 0o600), "{errors}");
}

/// A shell that ignores SIGHUP stands for `nohup`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ignored_hangup_does_not_end_a_recording() {
    let admin = Admin::with_tokens("");
    admin.reload(RULES);
    let address = admin.gateway().admin_address().expect("an address").to_string();
    // Undoes `nohup` of the tests themselves, where `env` can.
    let reset = ["env", "--default-signal=HUP"];
    let can_reset = Command::new(reset[0]).args([reset[1], "true"]).status().is_ok_and(|status| status.success());
    let reset = if can_reset { reset.join(" ") } else { String::new() };
    for (ignored, run, name) in
        [("HUP", "trap '' HUP; exec \"$@\"".to_owned(), "nohup"), ("", format!("exec {reset} \"$@\""), "hangup")]
    {
        let file = Recorded::new(name);
        let program = [env!("CARGO_BIN_EXE_tidegate"), "record", "--admin", &address, "-o", file.path()];
        let mut shell = Command::new("sh");
        let program = Program::start(shell.args(["-c", &run, "sh"]).args(program).env("TIDEGATE_TOKEN", TOKEN));
        until(|| file.text().ends_with('\n')).await;
        program.signal("HUP");
        if ignored == "HUP" {
            admin.request("/header", "").await;
            until(|| file.requests().len() == 1).await;
            program.signal("TERM");
        }
        let (status, summary) = program.wait_for_exit();
        assert!(status.success(), "{summary}");
    }
}

#[tokio::test]
async fn signal_before_the_start_ends_the_command() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let (address, file) = (silent.local_addr().expect("an address").to_string(), Recorded::new("silent"));
    let arguments = ["record", "--admin", &address, "-o", file.path()];
    let program = Program::start(tidegate(&arguments).env("TIDEGATE_TOKEN", TOKEN));
    let _connection = soon(silent.accept()).await.expect("a connection");
    program.signal("TERM"); // a shell may have ignored INT
    let (status, errors) = program.wait_for_exit();
    assert_eq!(status.signal(), Some(15), "{errors}");
    assert!(!file.0.exists());
}
