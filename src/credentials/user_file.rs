//! Reads files of users: a line `USER:HASH` for each, as `htpasswd -B` writes it. Messages contain no text of the file.

use std::path::Path;

use super::password::PasswordHash;
use super::sent_password::MAX_USER;
use super::users::UserTable;
use crate::credentials::key_file::KeyFileError;
use tidegate_rules::settings::files::read_at_most;

/// The largest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The help for a file with errors.
pub(crate) const HELP: &str = "write a line `USER:HASH` for each user, as `htpasswd -nB USER` prints it";

/// Reads a file of users.
///
/// # Errors
/// The file cannot be read, or has errors.
pub(crate) fn read(path: &Path) -> Result<UserTable, KeyFileError> {
    parse(&read_bytes(path)?)
}

/// Reads the bytes of a file of users.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, KeyFileError> {
    read_at_most(path, MAX_BYTES).map_err(KeyFileError::File)
}

/// Parses the bytes of a file of users. Empty lines, and lines that start with `#`, are ignored.
///
/// # Errors
/// The file has errors.
pub(crate) fn parse(bytes: &[u8]) -> Result<UserTable, KeyFileError> {
    let text = str::from_utf8(bytes).map_err(|_| KeyFileError::Faults(vec![(1, "the file is not UTF-8".into())]))?;
    let (mut table, mut faults) = (UserTable::default(), Vec::new());
    table.hash = Some(blake3::hash(bytes));
    for (number, line) in (1..).zip(text.strip_prefix('\u{feff}').unwrap_or(text).lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Err(fault) = add(line.trim_end(), &mut table) {
            faults.push((number, fault.into()));
        }
    }
    if faults.is_empty() { Ok(table) } else { Err(KeyFileError::Faults(faults)) }
}

fn add(line: &str, table: &mut UserTable) -> Result<(), &'static str> {
    let (user, hash) = line.split_once(':').ok_or("the line has no `:`")?;
    if user.is_empty() || user.len() > MAX_USER || user.chars().any(char::is_control) {
        return Err("a user has 1 to 255 bytes without control characters");
    }
    let hash = PasswordHash::parse(hash)?;
    if table.insert(user, hash) { Ok(()) } else { Err("the user occurs twice") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Users;

    #[test]
    fn lines_are_users() {
        let hash = format!("$2y$05${}", ".".repeat(53));
        let text = format!("\u{feff}# comment\n\nann:{hash}\r\nben b\u{f6}:{hash}  \n");
        let users = Users::new("users".into(), parse(text.as_bytes()).expect("users"));
        assert_eq!(users.len(), 2);
        assert_eq!(Users::new("users".into(), parse(b"").expect("no users")).len(), 0);
    }

    #[test]
    fn errors_have_lines_and_no_text_of_the_file() {
        let hash = format!("$2y$05${}", ".".repeat(53));
        let text = format!(
            "hunter2\nann:hunter2\nann:{hash}\nann:{hash}\n:{hash}\nben:$apr1$hunter2$hunter2\nx\ty:{hash}\n\
             eve:$2y$31${}\n",
            ".".repeat(53)
        );
        let error = parse(text.as_bytes()).expect_err("errors").to_string();
        assert_eq!(
            error,
            "has errors: line 1: the line has no `:`; line 2: the hash is not bcrypt; line 4: the user occurs twice; \
             line 5: a user has 1 to 255 bytes without control characters; line 6: the hash is not bcrypt; \
             line 7: a user has 1 to 255 bytes without control characters; \
             line 8: the cost of the hash is not from 4 to 14"
        );
        assert!(parse(b"\xff").expect_err("no text").to_string().contains("not UTF-8"));
    }
}
