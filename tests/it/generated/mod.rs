//! The texts that the program generates: pages, the schema of the rule file, completions and manual pages.

mod cli;
mod metrics;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::pages;
use crate::support::process::output;

fn text(arguments: &[&str]) -> String {
    let output = output(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Compares a file of the repository with a generated text. With `UPDATE_DOCS`, writes the file first.
fn assert_current(file: &str, generated: &str) {
    let path = pages::root().join(file);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, generated).expect("written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == generated, "{file} is stale: UPDATE_DOCS=1 cargo test --test it -- generated");
}

#[test]
fn schema_in_the_repository_is_current() {
    assert_current("config/tidegate.schema.json", &text(&["schema"]));
}

#[test]
fn page_of_the_rule_file_is_current() {
    assert_current("docs/rules.md", &tidegate_config::reference());
}

/// The rule files use every key, which `crates/config/src/tests/every_key.rs` checks.
#[test]
fn configuration_with_every_key_is_current_and_has_no_secret() {
    let folder = Path::new("tests/fixtures/every_key");
    let mut all = serde_json::Map::new();
    for name in ["cluster", "control_plane", "defaults", "memory", "redis", "sentinel", "service", "teams"] {
        let shown = tidegate::internals::show_config(&folder.join(format!("{name}.yaml"))).expect("a valid rule file");
        all.insert(name.to_owned(), shown);
    }
    let text = serde_json::to_string_pretty(&all).expect("JSON") + "\n";
    assert!(!text.contains("hunter2"), "{text}");
    assert_current("tests/fixtures/every_key/api_v1_config.json", &text);
}

#[test]
fn bash_completes_commands_and_options() {
    let script = "source /dev/stdin
COMP_WORDS=(tidegate rel); COMP_CWORD=1; _tidegate tidegate rel tidegate; echo \"${COMPREPLY[*]}\"
COMP_WORDS=(tidegate check --no); COMP_CWORD=2; _tidegate tidegate --no check; echo \"${COMPREPLY[*]}\"
";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut bash = bash.spawn().expect("bash");
    let completions = text(&["completions", "bash"]);
    bash.stdin.take().expect("a pipe").write_all(completions.as_bytes()).expect("written");
    let output = bash.wait_with_output().expect("bash ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "reload\n--no-files\n");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(text(&["completions", shell]).contains("no-watch"), "{shell}");
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a skipped test is reported")]
fn manual_pages_are_rendered_without_warnings() {
    for (arguments, expected) in
        [(&["man"][..], "tidegate-reload(1)"), (&["man", "run"], "--no-watch"), (&["man", "schema"], "JSON Schema")]
    {
        let page = text(arguments);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tidegate.1");
        fs::write(&path, &page).expect("written");
        let mut man = Command::new("man");
        man.args(["--warnings", "-l"]).arg(&path).env("MANPAGER", "cat").env("LC_ALL", "C");
        let Ok(rendered) = man.output() else {
            assert!(std::env::var_os("REQUIRE_MAN").is_none(), "man cannot be run");
            println!("NOT TESTED: there is no `man`");
            return;
        };
        let shown = String::from_utf8_lossy(&rendered.stdout).replace('\u{8}', "");
        assert!(rendered.status.success() && rendered.stderr.is_empty(), "{rendered:?}");
        assert!(shown.contains(expected), "{shown}");
    }
    assert_eq!(output(&["man", "nothing"]).status.code(), Some(2));
}
