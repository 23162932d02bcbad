//! How recordings end, and the files of `tidegate record`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::admin_api::{Admin, TOKEN};
use crate::record::{RULES, Recorded};
use crate::support::process::{Program, tidegate};
use crate::support::wire::{soon, until};

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
    for (ignored, name) in [("HUP", "nohup"), ("USR1", "hangup")] {
        let file = Recorded::new(name);
        let run = format!("trap '' {ignored}; exec \"$@\"");
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
    program.signal("INT");
    let (status, errors) = program.wait_for_exit();
    assert_eq!(status.signal(), Some(2), "{errors}");
    assert!(!file.0.exists());
}
