//! Rule files that the program writes itself, from settings of another kind.

use std::fmt;
use std::path::PathBuf;

/// A rule file in memory.
#[derive(Clone)]
pub struct WrittenRules {
    /// The name for messages.
    pub name: PathBuf,
    /// The text in YAML.
    pub text: String,
    /// The values of placeholders, for secrets, which precede environment variables.
    pub variables: Vec<(String, String)>,
}

/// Without secrets.
impl fmt::Debug for WrittenRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WrittenRules").field(&self.name).finish()
    }
}
