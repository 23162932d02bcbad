//! The paths of files that are parts of the rules.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::part_files::PartKey;
use crate::problem::{Checked, Location, Problems, quote};
use crate::sources::rule_texts::RuleTexts;
use crate::yaml::placeholders::Placeholders;

/// The start of an entry whose folder or file may be missing.
const OPTIONAL: char = '?';

/// Returns the files that an entry of this key names. `texts` has all files if they are not read from the file system.
pub(super) fn expand(
    (key, entry): (PartKey, &str),
    location: Location,
    texts: Option<&RuleTexts>,
    placeholders: &mut Placeholders<'_>,
    problems: &mut Problems,
) -> Checked<Vec<PathBuf>> {
    let (pattern, is_optional) = entry.strip_prefix(OPTIONAL).map_or((entry, false), |pattern| (pattern, true));
    let path = placeholders.files().part_path(pattern);
    if !pattern.contains('*') {
        let is_absent = is_optional && is_absent(&path, texts, placeholders);
        return Ok(if is_absent { Vec::new() } else { vec![path] });
    }
    let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
    if pattern.rsplit_once('/').is_some_and(|(folder, _)| folder.contains('*')) {
        let message = format!("a folder of `{}` contains `*`", key.name());
        return Err(problems.add(location, message, "write `*` only in the file name"));
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    if let Some(texts) = texts {
        let paths = texts.included.iter().map(|file| placeholders.files().part_path(&file.path));
        let is_match = |path: &PathBuf| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            parent == folder && path.file_name().is_some_and(|found| matches(name, found))
        };
        return Ok(paths.filter(is_match).collect());
    }
    placeholders.sources().record(folder);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>(),
        Err(error) if is_optional && error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let mut names = entries.map_err(|error| {
        let message = format!("the folder {} cannot be read: {error}", quote(&folder.display().to_string()));
        placeholders.sources().record_error(&message);
        problems.add(location, message, folder_help(entry, &error))
    })?;
    names.retain(|found| matches(name, found));
    names.sort();
    let paths = names.into_iter().map(|name| folder.join(name)).filter(|path| !path.is_dir()).collect::<Vec<_>>();
    if paths.is_empty() && !is_optional {
        let message = format!("{} matches no file", quote(pattern));
        problems.warn(location, &message, "a relative path starts at the folder of the rule file");
    }
    Ok(paths)
}

/// Returns `true` if a file does not exist. Otherwise it is read, and errors are reported.
fn is_absent(path: &Path, texts: Option<&RuleTexts>, placeholders: &mut Placeholders<'_>) -> bool {
    if let Some(texts) = texts {
        return texts.find(placeholders.files().relative(path)).is_none();
    }
    placeholders.sources().record(path); // so that the gateway notices a new file
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn folder_help(entry: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            let optional = quote(&format!("{OPTIONAL}{entry}"));
            format!(
                "a relative path starts at the folder of the rule file; if the folder may be missing, write {optional}"
            )
        }
        _ => "allow the user of the gateway to read the folder".to_owned(),
    }
}

/// Returns `true` if a file name matches a pattern with `*`, which matches any characters, but no dot at the start: such files are
/// hidden.
fn matches(pattern: &OsStr, name: &OsStr) -> bool {
    let (pattern, mut rest) = (pattern.as_bytes(), name.as_bytes());
    if rest.starts_with(b".") && !pattern.starts_with(b".") {
        return false;
    }
    let mut parts: Vec<&[u8]> = pattern.split(|byte| *byte == b'*').collect();
    let last = parts.pop().unwrap_or_default();
    for (number, part) in parts.into_iter().enumerate() {
        let found = match number {
            0 => rest.starts_with(part).then_some(0),
            _ if part.is_empty() => Some(0),
            _ => rest.windows(part.len()).position(|window| window == part),
        };
        let Some(found) = found else { return false };
        rest = &rest[found + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_characters_of_visible_files() {
        for (pattern, names, others) in [
            ("*.yaml", &["a.yaml", "a.b.yaml"][..], &["a.yml", ".yaml", ".a.yaml", "a.yaml~"][..]),
            ("*", &["a", "a.b"], &[".a", "..data"]),
            (".*", &[".a", "."], &["a"]),
            ("a*b*c", &["abc", "aXbXc", "abbc"], &["ab", "ac", "aXcXb", "abcX"]),
            ("a*a", &["aa", "aXa"], &["a"]),
            ("**.y", &["a.y"], &["a"]),
        ] {
            let is_match = |name: &&&str| matches(OsStr::new(pattern), OsStr::new(**name));
            assert!(names.iter().all(|name| is_match(&name)), "{pattern}");
            assert!(!others.iter().any(|name| is_match(&name)), "{pattern}");
        }
    }
}
