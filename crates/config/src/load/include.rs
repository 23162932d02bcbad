//! Adds the upstreams and routes of included files to the rule file.
//!
//! The routes of included files follow the routes of the rule file, in the order of `include` and of the file names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::file::FILE;
use crate::problem::suggest::nearest;
use crate::problem::{Checked, Location, Problems, quote};
use crate::sources::text::{MAX_READ, decode};
use crate::yaml::key_value::{KeyValue, describe};
use crate::yaml::node::{Entry, MERGE_KEY, Node, Value};
use crate::yaml::placeholders::Placeholders;
use crate::yaml::scalar::Scalar;
use crate::yaml::{self, Usage};
use tidegate_rules::settings::files::FileReadError;

/// The most bytes of all included files together.
const MAX_TOTAL: usize = 16 << 20;

/// The most included files.
const MAX_FILES: usize = 1000;

/// The keys of an included file.
const KEYS: [&str; 2] = ["upstreams", "routes"];

/// Reads the included files, and adds their upstreams and routes to the tree of the rule file at `main`.
pub(crate) fn include(
    root: &mut Node,
    main: &Path,
    usage: &mut Usage,
    placeholders: &mut Placeholders<'_>,
    problems: &mut Problems,
) {
    let Some(include) = root.entries().iter().find(|entry| entry.key == "include") else { return };
    // Other values than texts are reported with the other keys.
    let patterns = include.value.items().iter().filter_map(|item| Some((item.scalar()?, item.location)));
    let patterns: Vec<_> = patterns.filter(|(scalar, _)| scalar.is_text()).collect();
    let mut files: Vec<(PathBuf, Location)> = Vec::new();
    for (pattern, location) in patterns {
        let Ok(paths) = expand(&pattern.text, location, placeholders, problems) else { continue };
        for path in
            paths.into_iter().filter(|path| files.iter().all(|(existing, _)| existing != path)).collect::<Vec<_>>()
        {
            files.push((path, location));
        }
    }
    if let Some((_, location)) = files.get(MAX_FILES) {
        let message = format!("more than {MAX_FILES} included files");
        placeholders.sources().record_error(&message);
        problems.add(*location, message, "combine files");
        return;
    }
    let (mut remaining, main) = (MAX_TOTAL, fs::canonicalize(main).ok());
    for (path, location) in files {
        if main.is_some() && fs::canonicalize(&path).ok() == main {
            let help = "move the included files to their own folder, as in `include: conf.d/*.yaml`";
            let message = "the rule file includes itself";
            placeholders.sources().record(&path);
            placeholders.sources().record_error(&message);
            problems.add(location, message, help);
            continue;
        }
        let bytes = match placeholders.sources().read_included(&path, MAX_READ) {
            Ok(bytes) => bytes,
            Err(error) => {
                let help = if matches!(error, FileReadError::NotAFile) {
                    "name a regular file of at most 1 MiB"
                } else {
                    "a relative path starts at the folder of the rule file"
                };
                problems.add(location, format!("{} {error}", quote(&path.display().to_string())), help);
                continue;
            }
        };
        let Some(rest) = remaining.checked_sub(bytes.len()) else {
            let message = format!("the included files are together larger than {MAX_TOTAL} bytes (16 MiB)");
            problems.add(location, message, "combine routes with `{segment}`, `/**` and `*.host`");
            return;
        };
        remaining = rest;
        let file = problems.add_file(&path);
        if let Ok(included) =
            decode(bytes, file, problems).and_then(|text| yaml::read(&text, file, usage, placeholders, problems))
        {
            merge(root, included, problems);
        }
    }
}

/// Returns the files that an entry of `include` names.
fn expand(
    pattern: &str,
    location: Location,
    placeholders: &mut Placeholders<'_>,
    problems: &mut Problems,
) -> Checked<Vec<PathBuf>> {
    let path = placeholders.files().path(pattern);
    if !pattern.contains('*') {
        return Ok(vec![path]);
    }
    let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
    if pattern.rsplit_once('/').is_some_and(|(folder, _)| folder.contains('*')) {
        return Err(problems.add(location, "a folder of `include` contains `*`", "write `*` only in the file name"));
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    placeholders.sources().record(folder);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let mut names = entries.map_err(|error| {
        let message = format!("the folder {} cannot be read: {error}", quote(&folder.display().to_string()));
        placeholders.sources().record_error(&message);
        problems.add(location, message, "allow the user of the gateway to read the folder")
    })?;
    names.retain(|found| matches(name, found));
    names.sort();
    let paths = names.into_iter().map(|name| folder.join(name)).filter(|path| !path.is_dir()).collect::<Vec<_>>();
    if paths.is_empty() {
        let message = format!("{} matches no file", quote(pattern));
        problems.warn(location, &message, "a relative path starts at the folder of the rule file");
    }
    Ok(paths)
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

/// Adds the upstreams and routes of an included file.
fn merge(root: &mut Node, included: Node, problems: &mut Problems) {
    let location = included.location;
    let Value::Map(entries) = included.value else {
        let message = format!("an included file must be a map, not {}", describe(&included));
        problems.add(location, message, "an included file has only `upstreams` and `routes`");
        return;
    };
    for entry in entries {
        let key = quote(&entry.key);
        match entry.key.as_str() {
            existing if KEYS.contains(&existing) => append(root, entry, problems),
            MERGE_KEY => {}
            "include" => {
                let message = "an included file must not include other files";
                problems.add(entry.location, message, "name all files in the rule file");
            }
            other if FILE.key(other).is_some() => {
                let help = "move it to the rule file; an included file has only `upstreams` and `routes`";
                problems.add(entry.location, format!("{key} must not be in an included file"), help);
            }
            other => {
                let help = match nearest(other, KEYS) {
                    Some(near) => format!("did you mean {}?", quote(near)),
                    None => "an included file has only `upstreams` and `routes`".to_owned(),
                };
                problems.add(entry.location, format!("unknown key {key} in an included file"), help);
            }
        }
    }
}

/// Adds the values of a key to the values of the rule file.
fn append(root: &mut Node, mut entry: Entry, problems: &mut Problems) {
    let expected = if entry.key == "routes" { "a list" } else { "a map" };
    let is_expected = match &entry.value.value {
        Value::List(_) => entry.key == "routes",
        Value::Map(_) => entry.key != "routes",
        Value::Scalar(_) => false,
    };
    if !is_expected {
        let node = &entry.value;
        if !node.is_invalid() {
            let fault = format!("must be {expected}, not {}", describe(node));
            KeyValue { node, key: &entry.key }.report(&fault, "write it as in the rule file", problems);
        }
        // The key is not missing.
        entry.value.value = Value::Scalar(Scalar::invalid());
    }
    let Value::Map(entries) = &mut root.value else { return };
    let Some(existing) = entries.iter_mut().find(|existing| existing.key == entry.key) else {
        return entries.push(entry);
    };
    match (&mut existing.value.value, entry.value.value) {
        (Value::List(routes), Value::List(more)) => routes.extend(more),
        (Value::Map(upstreams), Value::Map(more)) => {
            for upstream in more {
                match upstreams.iter().find(|existing| existing.key == upstream.key) {
                    Some(existing) => {
                        let place = problems.place(existing.location, upstream.location);
                        let message = format!("upstream {} is already {place}", quote(&upstream.key));
                        problems.add(upstream.location, message, "give each upstream its own name");
                    }
                    None => upstreams.push(upstream),
                }
            }
        }
        // The included value has been reported, or the value of the rule file is reported with the other keys.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::File;
    use crate::problem::Problem;
    use crate::sources::SourceFiles;
    use crate::sources::referenced_files::ReferencedFiles;

    /// Returns the errors of a rule file that includes other files.
    fn errors(main: &str, included: &[&str]) -> Vec<String> {
        let (mut sources, mut problems, mut usage) = (SourceFiles::default(), Problems::default(), Usage::default());
        let mut placeholders = Placeholders::new(ReferencedFiles::in_current_folder(), &mut sources);
        let mut read = |text, problems: &mut Problems| yaml::read(text, 0, &mut usage, &mut placeholders, problems);
        let mut root = read(main, &mut problems).unwrap();
        for text in included {
            let included = read(text, &mut problems).unwrap();
            merge(&mut root, included, &mut problems);
        }
        _ = File::from_root(&root, &mut problems);
        problems.iter().map(Problem::message).map(str::to_owned).collect()
    }

    #[test]
    fn values_of_a_wrong_kind_are_reported_where_they_are() {
        let route = "routes: [{ name: a, match: {} }]";
        for (main, included, message) in [
            ("routes:", &[route][..], "`routes` has no value"),
            ("include: a", &["routes: {}", route], "`routes` must be a list, not a map"),
            (route, &["upstreams: []", "upstreams: {}"], "`upstreams` must be a map, not a list"),
            (route, &["routes: 5"], "`routes` must be a list, not `5`"),
        ] {
            assert_eq!(errors(main, included), [message], "{main}");
        }
    }

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
