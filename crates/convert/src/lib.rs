//! Reads the configurations of other gateways, and writes rule files of Tidegate. Pure: the caller reads the files, and
//! nothing is executed or contacted.
//!
//! [`convert`] finds the format of the files by their content. The module of the format reads them through `Input`, whose
//! bounds hold for all formats, writes a `Draft` of the rule file, and adds a [`Finding`] for each setting to the
//! [`Report`]: whether the rule file decides in the same way. `draft` writes the YAML text, and is the only place that
//! quotes values: a text of a source never becomes more than one value.
//!
//! A part of Tidegate, whose items change with each release.

mod cors;
mod detect;
mod draft;
mod error;
mod fields;
mod format;
mod guards;
mod header_fields;
mod ingress;
mod kong;
mod matching;
mod nginx;
mod options;
mod ratelimit;
mod repair;
mod report;
mod sentinel;
mod sources;
mod spring;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod traefik;
mod tree;
mod variables;

use std::path::PathBuf;

use self::draft::Draft;
pub use self::draft::NewFile;
pub use self::error::ConvertError;
pub use self::format::{Format, FormatError};
pub use self::options::Options;
pub use self::report::{Finding, Place, Report, Verdict};
use self::sources::Input;
pub use self::sources::texts::Texts;
pub use self::sources::{Files, MAX_FILE_BYTES, ReadError, glob};

/// The result of a conversion.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// The format of the files.
    pub format: Format,
    /// The rule file, as YAML.
    pub rules: String,
    /// More files that the rule file names. Their paths are relative to its folder.
    pub more_files: Vec<NewFile>,
    /// A finding for each setting of the files.
    pub report: Report,
}

impl Conversion {
    /// Returns the report as JSON: the format, the number of each verdict, the findings, and the names of more files.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let counts = Verdict::ALL.map(|verdict| (verdict.word().to_owned(), self.report.count(verdict).into()));
        serde_json::json!({
            "format": self.format,
            "counts": serde_json::Map::from_iter(counts),
            "findings": self.report.findings,
            "files": self.more_files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(),
        })
    }
}

/// Converts the files of a gateway to a rule file.
///
/// # Errors
/// Fails if no format is recognized, a file cannot be read or parsed, or a bound is exceeded.
pub fn convert(paths: &[PathBuf], files: &dyn Files, options: &Options) -> Result<Conversion, ConvertError> {
    let mut input = Input::new(paths, files, options);
    let format = match options.format {
        Some(format) => format,
        None => detect::detect(&mut input)?,
    };
    let (mut draft, mut report) = (Draft::default(), Report::default());
    let run = match format {
        Format::Nginx => nginx::convert,
        Format::IngressNginx => ingress::convert,
        Format::Kong => kong::convert,
        Format::Ratelimit => ratelimit::convert,
        Format::Traefik => traefik::convert,
        Format::Spring => spring::convert,
        Format::Sentinel => sentinel::convert,
    };
    run(&mut input, &mut draft, &mut report)?;
    repair::repair(&mut draft, &mut report);
    report.sort();
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    let title = format!("Written by `tidegate convert --from {format}` from {}.", names.join(", "));
    Ok(Conversion { format, rules: draft.text(&title), more_files: draft.more_files, report })
}
