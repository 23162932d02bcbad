//! A gateway in a sandbox: optimizations may fail, and a worker that fails ends the process.

use std::io::BufRead;
use std::path::Path;
use std::process::Command;

use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile, address, tidegate};
use crate::support::wire::raw::Raw;
use crate::support::wire::upstream::Origin;

/// Starts a gateway with two workers in this sandbox of `sandbox.c`.
fn start_in(sandbox: &str, file: &RuleFile) -> Program {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{sandbox}-{}.so", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/sandbox.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(built.expect("a C compiler, which links Rust programs too").success());
    let mut run = tidegate(&["run", "--workers", "2", "-c", file.path()]);
    Program::start(run.env("LD_PRELOAD", &library).env("SANDBOX", sandbox))
}

fn rules(target: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nupstreams: {{ origin: {{ targets: ['{target}'] }} }}\n\
         routes: [{{ name: all, match: {{}}, upstream: origin }}]\n"
    )
}

/// Regression test: each worker ended when the sandbox rejected `TCP_NOTSENT_LOWAT`, and clients waited forever.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_serves_without_any_socket_option() {
    let origin = Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let file = RuleFile::new("no-options", &rules(&format!("http://{}", origin.address)));
    let mut program = start_in("options", &file);
    let address = address(&mut program.stderr, "listening on http://");
    for _ in 0..4 {
        assert_eq!(get(&mut Raw::connect(address).await, "/", "").await.status(), 200);
    }
}

/// Regression test: the log said that the gateway listens, and the process continued without its worker.
#[cfg(target_os = "linux")]
#[test]
fn ended_worker_ends_the_process_with_its_cause() {
    let file = RuleFile::new("no-watches", &rules("builtin:echo"));
    let mut program = start_in("epoll", &file);
    let mut log = String::new();
    while !log.contains("a thread has ended") {
        assert_ne!(program.stderr.read_line(&mut log).expect("text"), 0, "{log}");
    }
    assert!(log.contains("ERROR") && log.contains("thread=\"worker-0\""), "{log}");
    let (status, rest) = program.wait_for_exit();
    assert_eq!(status.code(), Some(2), "{rest}");
    assert!(rest.contains("tidegate: worker-0 has ended: No space left on device"), "{rest}");
}
