//! Fuzzes the conversion of configurations of other gateways.

use std::sync::Arc;

use tidegate_config::{AnyIdentities, RuleFile, WrittenRules};
use tidegate_convert::{Conversion, Format, Options, Texts};

/// Separates the file from a file that it can include as `conf.d/a.conf`.
const SEPARATOR: &str = "\n=====\n";

/// Checks that each file is converted or rejected with a message, and that written rules are valid. The first byte selects
/// the format by its number; other bytes let the program recognize it.
pub fn convert(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let format = Format::ALL.get(usize::from(first.wrapping_sub(b'0'))).copied();
    let (main, included) = text.split_once(SEPARATOR).unwrap_or((text, ""));
    let files = Texts::from([("main", main), ("conf.d/a.conf", included)]);
    match tidegate_convert::convert(&["main".into()], &files, &Options { format, ..Options::default() }) {
        Ok(conversion) => check(&conversion),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check(Conversion { rules, report, .. }: &Conversion) {
    for finding in &report.findings {
        assert!(!finding.setting.is_empty(), "a finding at {} has no setting", finding.place);
    }
    // The check of a service reads the files of its domains.
    if rules.contains("\nservice: ") {
        return;
    }
    let written = WrittenRules { name: "<rules>".into(), text: rules.clone(), variables: Vec::new() };
    if let Err(error) = RuleFile::Written(Arc::new(written)).check_without_referenced_files(&AnyIdentities) {
        panic!("the rules have errors:\n{rules}\n{error}");
    }
}
