//! The file of `--state` with the ending `.rules` stores the texts of the rules in use.
//!
//! A gateway that starts with an invalid rule file uses these texts. They are the texts of the rule files themselves: their
//! placeholders are not replaced. Rule files can contain passwords, so only the owner can read the file.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::checked_file;
use tidegate_config::{IncludedText, RuleFile, RuleTexts};

/// The version of the file format.
const VERSION: u32 = 1;

/// The path of the file, and the rule file that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct SavedRules {
    path: PathBuf,
    /// The absolute path of the rule file.
    rule_file: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    rule_file: PathBuf,
    main: String,
    included: Vec<Included>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Included {
    path: PathBuf,
    team: Option<String>,
    /// `None` if the routes of the file are left out.
    text: Option<String>,
}

impl SavedRules {
    /// Returns the file that belongs to this state file. Returns `None` if the rules come from standard input.
    pub(crate) fn of_state(state: &Path, file: &RuleFile) -> Option<Self> {
        let RuleFile::Path(rule_file) = file else { return None };
        let mut path = state.to_owned().into_os_string();
        path.push(".rules");
        let rule_file = std::path::absolute(rule_file).unwrap_or_else(|_| rule_file.clone());
        Some(Self { path: path.into(), rule_file })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the texts. Returns `None` if the file does not exist, or has the texts of another rule file.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(crate) fn read(&self) -> io::Result<Option<RuleTexts>> {
        let Some(json) = checked_file::read(&self.path)? else { return Ok(None) };
        let damaged = |message: &str| io::Error::new(ErrorKind::InvalidData, message.to_owned());
        let Content { version, rule_file, main, included } = serde_json::from_str(&json)?;
        if version != VERSION {
            return Err(damaged(&format!("the file has version {version}, not {VERSION}")));
        }
        let included = included.into_iter().map(|Included { path, team, text }| IncludedText {
            path,
            team: team.map(Into::into),
            text: text.map(Into::into),
        });
        Ok((rule_file == self.rule_file).then(|| RuleTexts::new(main.into(), included.collect())))
    }

    /// Replaces the file atomically. Logs a failure.
    pub(crate) fn write(&self, texts: &RuleTexts) {
        if let Err(error) = self.try_write(texts) {
            tracing::warn!(path = %self.path.display(), %error, "cannot save the rules for the next start");
        }
    }

    fn try_write(&self, texts: &RuleTexts) -> io::Result<()> {
        let included = texts.included.iter().map(|file| Included {
            path: file.path.clone(),
            team: file.team.as_deref().map(str::to_owned),
            text: file.text.as_deref().map(str::to_owned),
        });
        let content = Content {
            version: VERSION,
            rule_file: self.rule_file.clone(),
            main: texts.main.to_string(),
            included: included.collect(),
        };
        checked_file::replace(&self.path, &serde_json::to_string(&content)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::checked_file::MODE;
    use super::*;

    #[test]
    fn only_undamaged_texts_of_the_rule_file_are_read() {
        let state = std::env::temp_dir().join(format!("tidegate-saved-{}", std::process::id()));
        let file = |name: &str| RuleFile::Path(std::env::temp_dir().join(name));
        let saved = SavedRules::of_state(&state, &file("rules.yaml")).expect("a path");
        assert_eq!(saved.read().expect("no file"), None);
        let included = |name: &str, text: Option<&str>| IncludedText {
            path: name.into(),
            team: Some(name.into()),
            text: text.map(Into::into),
        };
        let texts =
            RuleTexts::new("main: \"${file:secret}\"\n".into(), vec![included("a", Some("a")), included("b", None)]);
        saved.write(&texts);
        assert_eq!(saved.read().expect("a file"), Some(texts));
        assert_eq!(fs::metadata(saved.path()).expect("a file").permissions().mode() & 0o777, MODE);
        let other = SavedRules::of_state(&state, &file("other.yaml")).expect("a path");
        assert_eq!(other.read().expect("a file"), None);
        let text = fs::read_to_string(saved.path()).expect("a file");
        for damaged in [text.replace("secret", "Secret"), text.replace('\n', ""), String::new()] {
            fs::write(saved.path(), damaged).expect("written");
            assert!(saved.read().is_err());
        }
        fs::remove_file(saved.path()).expect("removed");
        assert!(SavedRules::of_state(&state, &RuleFile::Stdin).is_none());
    }
}
