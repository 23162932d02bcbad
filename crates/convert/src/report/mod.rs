//! The report of a conversion: a finding for each setting of the source.

mod notes;
mod table;

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

pub(crate) use self::notes::Notes;

/// The longest setting or reason in a finding, in characters. Longer texts are cut.
const MAX_TEXT: usize = 300;

/// The findings of a conversion, sorted by place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The findings.
    pub findings: Vec<Finding>,
}

/// A setting, and its equivalent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The place of the setting.
    #[serde(flatten)]
    pub place: Place,
    /// The setting, as in the source: its name, and its value if that is short.
    pub setting: String,
    /// How the rule file decides, compared with the source.
    pub verdict: Verdict,
    /// The key of the rule file, or the difference. Empty if the setting needs no explanation.
    pub reason: String,
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The path of the file, as the caller or an `include` gave it.
    #[serde(serialize_with = "as_text")]
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
}

/// How the rule file decides, compared with the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// In the same way.
    Same,
    /// It rejects some requests that the source admits.
    Stricter,
    /// It admits some requests that the source rejects.
    Looser,
    /// The rule file does not have the setting.
    Lost,
}

// === impl Report ===

impl Report {
    /// Adds a finding. Line breaks and other control characters of the texts are escaped, since the source can contain
    /// any text.
    pub(crate) fn add(&mut self, place: &Place, verdict: Verdict, setting: impl AsRef<str>, reason: impl AsRef<str>) {
        let (setting, reason) = (shown(setting.as_ref()), shown(reason.as_ref()));
        self.findings.push(Finding { place: place.clone(), setting, verdict, reason });
    }

    /// Adds a setting that the rule file has in the same way.
    pub(crate) fn same(&mut self, place: &Place, setting: impl AsRef<str>, reason: impl AsRef<str>) {
        self.add(place, Verdict::Same, setting, reason);
    }

    /// Adds a setting that the rule file makes stricter.
    pub(crate) fn stricter(&mut self, place: &Place, setting: impl AsRef<str>, reason: impl AsRef<str>) {
        self.add(place, Verdict::Stricter, setting, reason);
    }

    /// Adds a setting that the rule file makes looser.
    pub(crate) fn looser(&mut self, place: &Place, setting: impl AsRef<str>, reason: impl AsRef<str>) {
        self.add(place, Verdict::Looser, setting, reason);
    }

    /// Adds a setting that the rule file does not have.
    pub(crate) fn lost(&mut self, place: &Place, setting: impl AsRef<str>, reason: impl AsRef<str>) {
        self.add(place, Verdict::Lost, setting, reason);
    }

    /// Returns `true` if a setting is lost.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.count(Verdict::Lost) > 0
    }

    /// Returns the number of findings with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// Sorts the findings by place. Findings of a line keep their order.
    pub(crate) fn sort(&mut self) {
        self.findings.sort_by(|left, right| left.place.cmp(&right.place));
    }
}

// === impl Place ===

impl Place {
    /// Returns the start of a file.
    pub(crate) fn start_of(file: impl Into<Arc<str>>) -> Self {
        Self { file: file.into(), line: 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", shown(&self.file), self.line))
    }
}

// === impl Verdict ===

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 4] = [Self::Same, Self::Stricter, Self::Looser, Self::Lost];

    /// Returns the word of the verdict.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Stricter => "stricter",
            Self::Looser => "looser",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

fn as_text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

/// Returns at most [`MAX_TEXT`] characters of a text, with control characters escaped.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (count, character) in text.chars().enumerate() {
        match character {
            _ if count == MAX_TEXT => {
                shown.push_str("...");
                break;
            }
            character if character.is_control() => shown.extend(character.escape_default()),
            character => shown.push(character),
        }
    }
    shown
}
