//! The text of a rule file: its size and its encoding.

use crate::problem::{Checked, Location, Problems};

/// The largest size of a rule file, in bytes.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// One byte more shows that a file is too large.
pub(crate) const MAX_READ: u64 = MAX_BYTES as u64 + 1;

/// Decodes the text of the file with this number.
pub(crate) fn decode(bytes: Vec<u8>, file: u16, problems: &mut Problems) -> Checked<String> {
    if bytes.len() > MAX_BYTES {
        let message = format!("the file is larger than {MAX_BYTES} bytes (1 MiB)");
        let help = "combine routes with `{segment}`, `/**` and `*.host`, or move routes to files for `include`";
        return Err(problems.add(Location::start_of(file), message, help));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..valid]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let byte = error.as_bytes().get(valid).copied().unwrap_or_default();
        let location = Location::new(file, line, column);
        problems.add(location, format!("byte 0x{byte:02x} is not UTF-8"), "save the file as UTF-8")
    })
}
