//! Values that are not known pass every check: each value of the rule files with every key, one after the other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use saphyr_parser::{Event, Parser};

use crate::problem::Problems;
use crate::sources::SourceFiles;
use crate::sources::referenced_files::ReferencedFiles;
use crate::{AnyIdentities, Purpose, Source, load};

/// The folder of the rule files.
const FOLDER: &str = "../../tests/fixtures/every_key";

/// Returns the errors of a rule file, or the number of unknown values.
fn check(path: &Path, text: &str) -> Result<usize, Problems> {
    let files = ReferencedFiles::relative_to(path).with_checks(&AnyIdentities).unchecked().accepting_unknown();
    let source = Source { files, name: path, ..Source::text(Purpose::Gateway) };
    match load::run(text.into(), source, &mut SourceFiles::default()) {
        Ok(_) => Ok(0),
        Err(problems) if problems.is_empty() => Ok(problems.unknown_values()),
        Err(problems) => Err(problems),
    }
}

/// Returns the messages of the errors.
fn messages(checked: Result<usize, Problems>) -> BTreeSet<String> {
    let problems = checked.err().unwrap_or_default();
    problems.iter().map(|problem| problem.message().to_owned()).collect()
}

/// Returns the ranges of all scalars that are values and not keys.
fn values(text: &str) -> Vec<std::ops::Range<usize>> {
    // For each open list or map, whether the next event is a key. Lists have none.
    let (mut open, mut values): (Vec<Option<bool>>, Vec<_>) = (Vec::new(), Vec::new());
    for event in Parser::new_from_str(text) {
        let (event, span) = event.expect("YAML");
        if matches!(event, Event::SequenceEnd | Event::MappingEnd) {
            open.pop();
            continue;
        }
        if !matches!(event, Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(..)) {
            continue;
        }
        let is_key = open.last_mut().and_then(Option::as_mut).is_some_and(|is_key| std::mem::replace(is_key, !*is_key));
        match event {
            Event::Scalar(..) if !is_key => values.push(span.start.index()..span.end.index()),
            Event::SequenceStart(..) => open.push(None),
            Event::MappingStart(..) => open.push(Some(true)),
            _ => {}
        }
    }
    values
}

#[test]
fn unknown_value_of_any_key_passes_every_check() {
    let (mut checked_values, mut all) = (0, Vec::new());
    for entry in fs::read_dir(FOLDER).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|ending| ending != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a rule file");
        assert!(text.is_ascii(), "positions are bytes");
        // A build without TLS reports its keys.
        let known = messages(check(&path, &text));
        let mut failed = Vec::new();
        for range in values(&text) {
            let mut changed = text.clone();
            changed.replace_range(range.clone(), "\"${TIDEGATE_NOT_SET}\"");
            let checked = check(&path, &changed);
            assert!(checked.as_ref().map_or_else(Problems::unknown_values, |count| *count) == 1, "{changed}");
            let more: Vec<_> = messages(checked).difference(&known).cloned().collect();
            if !more.is_empty() {
                failed.push(format!(
                    "line {}, `{}`: {more:?}",
                    text[..range.start].matches('\n').count() + 1,
                    &text[range]
                ));
            }
            checked_values += 1;
        }
        all.extend(failed.iter().map(|failed| format!("{}: {failed}", path.display())));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
    assert!(checked_values > 300, "{checked_values} values");
}

#[test]
fn unknown_values_have_locations_and_causes() {
    let text = "
listen: 127.0.0.1:1
admin: ${TIDEGATE_NOT_SET}
upstreams: { a: { targets: ['builtin:echo'] } }
routes: [{ name: 'x-${file:none}', match: { path: /** }, upstream: a, limits: [{ name: a, mode: OVERALL, rate: 0, interval: 1m }] }]
";
    let errors = check(Path::new("rules.yaml"), text).expect_err("an error").to_string();
    for part in [
        "5:112: `rate` must be",
        "3:8: warning: unknown value: the variable `TIDEGATE_NOT_SET` is not set",
        "5:18: warning: unknown value: the file `none` is not read",
    ] {
        assert!(errors.contains(part), "{errors}");
    }
    assert!(matches!(check(Path::new("rules.yaml"), &text.replace("rate: 0", "rate: 1")), Ok(2)));
    let wrong = check(Path::new("rules.yaml"), &text.replace("${TIDEGATE_NOT_SET}", "${TIDEGATE_NOT_SET"));
    assert!(wrong.is_err_and(|errors| errors.to_string().contains("has no `}`")), "the notation is checked");
}
