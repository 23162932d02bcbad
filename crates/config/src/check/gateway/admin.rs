//! Checks the settings of the admin listener.

use std::path::{Path, PathBuf};

use super::listen;
use crate::file::File;
use crate::problem::{Checked, Location, Problems, quote};
use crate::sources::referenced_files::ReferencedFiles;
use crate::values::dashboard::DashboardMode;
use crate::{Config, ListenAddress, Tokens, TokensError};

/// Returns the address; `None` if the listener is off.
pub(crate) fn address(file: &File, problems: &mut Problems) -> Checked<Option<ListenAddress>> {
    let Some(admin) = file.admin.optional(problems)? else { return Ok(Some(Config::DEFAULT_ADMIN)) };
    match admin.address.optional(problems)?.map(String::as_str) {
        None => Ok(Some(Config::DEFAULT_ADMIN)),
        Some("off") => Ok(None),
        Some(text) => listen::address(text, admin.address.location, problems).map(Some),
    }
}

/// Returns whether the dashboard is served.
pub(crate) fn dashboard(file: &File, problems: &mut Problems) -> Checked<DashboardMode> {
    let Some(admin) = file.admin.optional(problems)? else { return Ok(DashboardMode::default()) };
    admin.dashboard.or_default(problems)
}

/// Returns the token file. Reports an invalid one.
pub(crate) fn tokens(file: &File, files: ReferencedFiles<'_>, problems: &mut Problems) -> Checked<Option<PathBuf>> {
    let Some(admin) = file.admin.optional(problems)? else { return Ok(None) };
    let Some(tokens) = admin.tokens.optional(problems)? else { return Ok(None) };
    let path = files.path(tokens.file.required(problems)?);
    if files.are_checked() {
        check_file(&path, tokens.file.location, problems)?;
    }
    Ok(Some(path))
}

/// Returns whether to keep the values of rejected clients.
pub(crate) fn show_clients(file: &File, problems: &mut Problems) -> Checked<bool> {
    let Some(admin) = file.admin.optional(problems)? else { return Ok(false) };
    admin.show_clients.or_default(problems)
}

/// Returns whether to count the requests of clients.
pub(crate) fn talkers(file: &File, problems: &mut Problems) -> Checked<bool> {
    let Some(admin) = file.admin.optional(problems)? else { return Ok(false) };
    admin.talkers.or_default(problems)
}

fn check_file(path: &Path, at: Location, problems: &mut Problems) -> Checked<()> {
    let Err(error) = Tokens::read(path) else { return Ok(()) };
    let message = format!("{} {error}", quote(&path.to_string_lossy()));
    let help = match &error {
        TokensError::File(error) => error.help(path),
        TokensError::Empty | TokensError::Line(_) => None,
        TokensError::Short(_) => Some("generate tokens with `openssl rand -hex 32`".to_owned()),
    };
    Err(problems.add(at, message, help.unwrap_or_else(|| "write a line `name:token` for each operator".to_owned())))
}
