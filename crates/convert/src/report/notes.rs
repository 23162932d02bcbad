//! Findings of which the worst one counts.

use std::collections::BTreeMap;

use super::{Place, Report, Verdict};

/// The findings about settings that apply in several places: each setting has the finding with the worst verdict.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    found: BTreeMap<(Place, String), (Verdict, String)>,
}

// === impl Notes ===

impl Notes {
    pub(crate) fn add(&mut self, place: &Place, setting: String, verdict: Verdict, reason: impl Into<String>) {
        let (worst, text) = self.found.entry((place.clone(), setting)).or_insert_with(|| (verdict, String::new()));
        if verdict > *worst || text.is_empty() && verdict == *worst {
            (*worst, *text) = (verdict, reason.into());
        }
    }

    /// Returns `true` if the setting has a finding.
    pub(crate) fn has(&self, place: &Place, setting: String) -> bool {
        self.found.contains_key(&(place.clone(), setting))
    }

    /// Returns the verdict about the setting so far.
    pub(crate) fn verdict(&self, place: &Place, setting: String) -> Option<Verdict> {
        self.found.get(&(place.clone(), setting)).map(|(verdict, _)| *verdict)
    }

    /// Moves the findings to the report.
    pub(crate) fn finish(self, report: &mut Report) {
        for ((place, setting), (verdict, reason)) in self.found {
            report.add(&place, verdict, setting, reason);
        }
    }
}
