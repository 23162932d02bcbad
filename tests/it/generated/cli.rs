//! `docs/cli.md` is what the program prints with `-h`.

use std::fmt::Write;
use std::process::Command;

use super::assert_current;

const INTRODUCTION: &str = "# Command line

The program prints this text with `-h`, and more with `--help`. `UPDATE_DOCS=1 cargo test --test it -- generated` writes this page.

Exit codes: 0 yes; 1 no: `check` finds errors, `convert` loses settings, `diff` finds changes, `explain` finds that the request is
rejected before its limits, or the gateway says no; 2 could not answer. An environment variable applies if its option is absent.

The program writes its completions, its manual pages and the schema of the rule file:

```
tidegate completions bash > /etc/bash_completion.d/tidegate
tidegate man > ~/.local/share/man/man1/tidegate.1
tidegate man run > ~/.local/share/man/man1/tidegate-run.1
tidegate schema > tidegate.schema.json
```

Editors with the YAML language server check and complete a rule file whose first line is
`# yaml-language-server: $schema=tidegate.schema.json`.
";

#[test]
fn command_line_page_is_the_programs_help() {
    assert_current("docs/cli.md", &page());
}

fn page() -> String {
    let overview = help(&[]);
    // Without a command, the program has the options of `run`.
    let (commands_only, _) = overview.split_once("\nOptions:").expect("options");
    let mut page = format!("{INTRODUCTION}\n```\n{}\n```\n", commands_only.trim_end());
    for command in commands(&overview) {
        let text = help(&[&command]);
        write!(page, "\n## tidegate {command}\n\n```\n{}\n```\n", text.trim_end()).expect("text");
    }
    page
}

/// Returns the names in the section `Commands:`.
fn commands(overview: &str) -> Vec<String> {
    let (_, rest) = overview.split_once("Commands:\n").expect("commands");
    let lines = rest.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn help(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.args(arguments).arg("-h").env_clear().output().expect("the program");
    // Spaces at the ends of lines mean nothing in Markdown.
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
