//! The rule files and the commands in Markdown pages work.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::pages::{self, Page};

#[test]
fn rule_file_fragments_pass_the_check() {
    let mut checked = 0;
    let mut faults = Vec::new();
    for page in pages::all().iter().filter(|page| is_about_rules(page)) {
        for block in page.blocks().iter().filter(|block| block.language == "yaml") {
            checked += 1;
            let file = complete(&block.code);
            if let Some(errors) = check(&file) {
                faults.push(format!("{}:{}: {errors}\n{file}", page.name(), block.line));
            }
        }
    }
    assert!(checked > 20, "only {checked} fragments");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns what `tidegate check` prints about a rule file with errors.
fn check(file: &str) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["check", "--no-files", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().expect("the program");
    program.stdin.take().expect("its input").write_all(file.as_bytes()).expect("it reads");
    let output = program.wait_with_output().expect("its end");
    let text = [output.stdout, output.stderr].concat();
    (!output.status.success()).then(|| String::from_utf8_lossy(&text).into_owned())
}

fn is_about_rules(page: &Page) -> bool {
    let name = page.name();
    name == "README.md" || name.starts_with("docs/")
}

/// Completes a fragment to a rule file for a gateway. A fragment is some keys of the file, or limits of a route.
fn complete(fragment: &str) -> String {
    let indent = |text: &str, by: usize| -> String {
        let own = text.lines().filter(|line| !line.trim().is_empty()).map(|line| line.len() - line.trim_start().len());
        let own = own.min().unwrap_or(0);
        text.lines().map(|line| format!("{:by$}{}\n", "", line.get(own..).unwrap_or_default())).collect()
    };
    let route = "routes:\n  - name: example\n    match: { path: /** }\n    upstream: api\n";
    let body = match fragment.trim_start() {
        limits if limits.starts_with("- {") => format!("{route}    limits:\n{}", indent(fragment, 6)),
        limits if limits.starts_with("limits:") && !limits.contains("routes:") => {
            format!("{route}{}", indent(fragment, 4))
        }
        _ => indent(fragment, 0),
    };
    let has = |key: &str| body.lines().any(|line| line.starts_with(key));
    let mut file = String::new();
    if !has("listen:") {
        file.push_str("listen: 127.0.0.1:0\n");
    }
    if !has("store:") {
        file.push_str("store: redis://127.0.0.1:6379\n");
    }
    if !has("upstreams:") {
        file.push_str("upstreams: { api: { targets: [builtin:echo] } }\n");
    }
    if !has("routes:") {
        file.push_str("routes: [{ name: all, match: { path: /** }, upstream: api }]\n");
    }
    file + &body
}

#[test]
fn commands_of_the_program_parse() {
    let folder = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("its folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut tried = 0;
    for page in pages::all() {
        for line in command_lines(&page, "tidegate ") {
            // Without a redirection, so that the test writes no files.
            let command = line.split(" #").next().and_then(|line| line.split(" >").next()).unwrap_or_default();
            let command = command.trim_end().trim_end_matches('&');
            let output = Command::new("sh").args(["-c", &format!("{command} --help")]).env("PATH", &path).output();
            let output = output.expect("a shell");
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {line}\n{message}", page.name());
            tried += 1;
        }
    }
    assert!(tried > 5, "only {tried} commands");
}

#[test]
fn named_examples_benchmarks_and_scripts_exist() {
    for page in pages::all() {
        for (option, folder) in [("--example ", "examples"), ("--bench ", "benches")] {
            for rest in page.text.split(option).skip(1) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let file = pages::root().join(folder).join(format!("{name}.rs"));
                let is_placeholder = name.chars().all(|c| c.is_uppercase() || c == '_');
                let exists = is_placeholder || file.exists() || file.with_extension("").is_dir() || is_target(&name);
                assert!(exists, "{}: there is no {option}{name}", page.name());
            }
        }
        for script in ["tests/", "benches/", "fuzz/"].iter().flat_map(|folder| scripts(&page.text, folder)) {
            assert!(pages::root().join(&script).exists(), "{}: there is no {script}", page.name());
        }
    }
}

/// Whether a Cargo.toml names this example or benchmark.
fn is_target(name: &str) -> bool {
    ["Cargo.toml", "benches/steps/Cargo.toml"].iter().any(|path| {
        let manifest = fs::read_to_string(pages::root().join(path)).expect("Cargo.toml");
        manifest.contains(&format!("name = \"{name}\""))
    })
}

/// Returns the paths of scripts called `run` in a folder.
fn scripts(text: &str, folder: &str) -> Vec<String> {
    let starts = text.match_indices(folder).filter(|(at, _)| !text[..*at].ends_with(['/', '.', '-']));
    let paths = starts.map(|(at, _)| {
        text[at..].chars().take_while(|c| c.is_alphanumeric() || matches!(c, '/' | '_' | '-')).collect::<String>()
    });
    paths.filter(|path| path.ends_with("/run")).collect()
}

/// Returns the lines of code blocks that begin with a command.
fn command_lines(page: &Page, command: &str) -> Vec<String> {
    let blocks = page.blocks();
    let lines = blocks.iter().filter(|block| block.language.is_empty() || block.language == "sh").flat_map(|block| {
        block.code.lines().filter(|line| line.starts_with(command)).map(str::to_owned).collect::<Vec<_>>()
    });
    lines.collect()
}
