//! Helpers of the tests of all formats.

use std::path::PathBuf;

use tidegate_config::Config;

use crate::format::Format;
use crate::options::Options;
use crate::sources::texts::Texts;
use crate::{Conversion, convert};

/// Converts files of the format. All but those with the prefix `include:` are arguments of the command. Checks that the
/// rule file is valid for a layer, whose checks are those of the gateway without files of certificates.
#[track_caller]
pub(crate) fn converted<const N: usize>(format: Format, files: [(&str, &str); N]) -> Conversion {
    converted_with(&Options { format: Some(format), ..Options::default() }, files)
}

/// Like [`converted`], with these options.
#[track_caller]
pub(crate) fn converted_with<const N: usize>(options: &Options, files: [(&str, &str); N]) -> Conversion {
    let given = files.iter().filter(|(name, _)| !name.starts_with("include:"));
    let paths: Vec<PathBuf> = given.map(|(name, _)| PathBuf::from(name)).collect();
    let texts: Texts = files.iter().map(|&(name, text)| (name.trim_start_matches("include:"), text)).collect();
    let conversion = convert(&paths, &texts, options).unwrap();
    if let Err(problems) = Config::parse(&conversion.rules) {
        panic!("the rule file is not valid:\n{}\n{problems}", conversion.rules);
    }
    conversion
}

/// Returns the rule file and the report of a conversion, for snapshots.
pub(crate) fn shown(conversion: &Conversion) -> String {
    let more = conversion.more_files.iter().map(|file| format!("\n--- {}\n{}", file.name, file.text));
    format!("{}{}\n---\n{}\n", conversion.rules, more.collect::<String>(), conversion.report)
}
