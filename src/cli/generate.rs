//! `tidegate schema`, `tidegate completions` and `tidegate man`: texts that are generated from the program.

use std::io::{self, Write};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// A command of the program; without one, the page describes the program
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

/// Writes the JSON Schema of the rule file. Returns the exit code.
///
/// # Errors
/// `out` cannot be written to.
pub(super) fn schema(out: &mut impl Write) -> io::Result<u8> {
    serde_json::to_writer_pretty(&mut *out, &tidegate_config::schema())?;
    writeln!(out)?;
    Ok(0)
}

/// Writes the script that completes the arguments of `program`. Returns the exit code.
///
/// # Errors
/// `out` cannot be written to.
pub(super) fn completions(args: &CompletionsArgs, mut program: Command, out: &mut impl Write) -> io::Result<u8> {
    // `generate` panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "tidegate", &mut script);
    out.write_all(&script)?;
    Ok(0)
}

/// Writes the manual page of `program` or of one of its commands. Returns the exit code: 2 for an unknown command.
///
/// # Errors
/// `out` or `errors` cannot be written to.
pub(super) fn man(args: &ManArgs, program: Command, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let page = match &args.command {
        None => program,
        Some(name) => match program.find_subcommand(name) {
            Some(command) => command.clone(),
            None => {
                let names: Vec<_> = program.get_subcommands().map(Command::get_name).collect();
                writeln!(errors, "tidegate: unknown command `{name}`; the commands are {}", names.join(", "))?;
                return Ok(2);
            }
        },
    };
    Man::new(page).source(concat!("tidegate ", env!("CARGO_PKG_VERSION"))).render(out)?;
    Ok(0)
}
