//! The report as a table.

use std::fmt;

use super::{Report, Verdict};

/// The widest column of places and settings, in characters. Longer texts move the rest of their line.
const MAX_WIDTH: usize = 48;

impl fmt::Display for Report {
    /// Writes a line for each finding, and a line with the number of each verdict.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<String> = self.findings.iter().map(|finding| finding.place.to_string()).collect();
        let width = |texts: &mut dyn Iterator<Item = &str>| {
            texts.map(|text| text.chars().count().min(MAX_WIDTH)).max().unwrap_or_default()
        };
        let place_width = width(&mut places.iter().map(String::as_str));
        let setting_width = width(&mut self.findings.iter().map(|finding| finding.setting.as_str()));
        for (place, finding) in places.iter().zip(&self.findings) {
            let (setting, verdict, reason) = (&finding.setting, finding.verdict, &finding.reason);
            let line = format!("{place:place_width$}  {verdict:8}  {setting:setting_width$}  {reason}");
            writeln!(f, "{}", line.trim_end())?;
        }
        let counts = Verdict::ALL.map(|verdict| format!("{} {verdict}", self.count(verdict)));
        write!(f, "{}", counts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Place;
    use super::*;

    #[test]
    fn table_has_a_line_for_each_finding() {
        let (mut report, place) = (Report::default(), Place::start_of("a.conf"));
        report.same(&place, "rate=1r/s", "");
        report.lost(&Place { line: 12, ..place }, "x\ny", "unknown");
        let lines = "a.conf:1   same      rate=1r/s\na.conf:12  lost      x\\ny       unknown\n";
        assert_eq!(report.to_string(), format!("{lines}1 same, 0 stricter, 0 looser, 1 lost"));
    }
}
