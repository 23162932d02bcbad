//! Helpers of the tests of all formats.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_config::{AnyIdentities, RuleFile, WrittenRules};

use crate::format::Format;
use crate::options::Options;
use crate::report::Verdict;
use crate::sources::texts::Texts;
use crate::{Conversion, convert};

/// Converts files of the format. All but those with the prefix `include:` are arguments of the command. Checks that the
/// rule file is valid.
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
    check(&conversion.rules);
    conversion
}

/// Checks that a rule file is valid for the gateway, without the files that it names.
#[track_caller]
pub(crate) fn check(rules: &str) {
    let written = WrittenRules { name: "<rules>".into(), text: rules.to_owned(), variables: Vec::new() };
    if let Err(error) = RuleFile::Written(Arc::new(written)).check_without_referenced_files(&AnyIdentities) {
        panic!("the rule file is not valid:\n{rules}\n{error}");
    }
}

/// Returns the rule file and the report of a conversion, for snapshots.
pub(crate) fn shown(conversion: &Conversion) -> String {
    let more = conversion.more_files.iter().map(|file| format!("\n--- {}\n{}", file.name, file.text));
    format!("{}{}\n---\n{}\n", conversion.rules, more.collect::<String>(), conversion.report)
}

/// Returns the verdict and the reason of the finding whose setting begins with this text.
#[track_caller]
pub(crate) fn finding<'c>(conversion: &'c Conversion, setting: &str) -> (Verdict, &'c str) {
    let all = &conversion.report.findings;
    let found: Vec<_> = all.iter().filter(|finding| finding.setting.starts_with(setting)).collect();
    let [found] = found[..] else { panic!("{setting}: {all:#?}") };
    (found.verdict, &found.reason)
}
