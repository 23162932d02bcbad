//! `tidegate reload`: reloads the rule file of a running gateway through its admin API.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Value, json};

use super::operate::{ApiArgs, ApiError, send_to_all, write_config_errors};

/// Arguments of `tidegate reload`.
#[derive(Debug, Args)]
pub(super) struct ReloadArgs {
    /// Reload all gateways that share the store; needs a token of each
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    api: ApiArgs,
    /// Use a store at another address even if no Redis replies there
    #[arg(long, conflicts_with = "all")]
    force: bool,
}

/// Reloads the rule file, and writes what changed. Returns the exit code: 0 if the gateway uses the rule file, 1 if the
/// file or a file of a team has errors, and 2 if the gateway cannot reload it.
///
/// # Errors
/// `out` or `errors` cannot be written to.
pub(super) fn reload(args: &ReloadArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    if args.all {
        return send_to_all(&args.api, &json!({ "action": "reload" }), out, errors);
    }
    let target = if args.force { "/api/v1/reload?force=true" } else { "/api/v1/reload" };
    match args.api.send("POST", target) {
        Ok(report) => {
            match args.api.json {
                true => writeln!(out, "{report:#}")?,
                false => write_report(&report, out)?,
            }
            write_config_errors(&report["errors"], errors)?;
            Ok(u8::from(report["errors"].as_array().is_some_and(|errors| !errors.is_empty())))
        }
        Err(ApiError::Rejected(422, _, problem)) => write_config_errors(&problem["errors"], errors).map(|()| 1),
        Err(error) => writeln!(errors, "tidegate: {error}").map(|()| 2),
    }
}

fn write_report(report: &Value, out: &mut impl Write) -> io::Result<()> {
    let texts = |key: &str| report[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>();
    let (changes, needs_restart) = (texts("changes"), texts("needs_restart"));
    if changes.is_empty() {
        writeln!(out, "no changes")?;
    }
    changes.iter().try_for_each(|change| writeln!(out, "{change}"))?;
    needs_restart.iter().try_for_each(|key| writeln!(out, "setting {key}: changed, needs a restart"))
}
