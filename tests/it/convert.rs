//! `tidegate convert`: its output, its exit codes and its files. The tests of the crate convert each format.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::process::output;

const DOMAIN: &str = "
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 5 }
";

/// A folder with files. Dropping it removes it.
struct Folder(PathBuf);

impl Folder {
    /// Creates a folder. No other test may use `name`.
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("convert-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("written");
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the exit code, standard output and standard error of `tidegate convert`.
fn convert(args: &[&str]) -> (i32, String, String) {
    let output = output(&[&["convert"], args].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("an exit code"), text(output.stdout), text(output.stderr))
}

#[test]
fn rules_go_to_standard_output_and_pass_check() {
    let folder = Folder::new("output", &[("edge.yaml", DOMAIN)]);
    let file = folder.path("edge.yaml");
    let (code, rules, report) = convert(&[&file]);
    assert_eq!(code, 0, "{report}");
    assert!(rules.starts_with(&format!("# Written by `tidegate convert --from ratelimit` from {file}.\n")), "{rules}");
    assert!(report.contains("same") && report.ends_with("1 same, 0 stricter, 1 looser, 0 lost\n"), "{report}");
    let written = folder.path("rules.yaml");
    assert_eq!(convert(&[&file, "-o", &written]), (0, String::new(), report));
    assert_eq!(fs::read_to_string(&written).expect("written"), rules);
    let checked = output(&["check", &written]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn existing_file_is_replaced_only_with_force() {
    let folder = Folder::new("force", &[("edge.yaml", DOMAIN), ("rules.yaml", "mine")]);
    let (file, rules) = (folder.path("edge.yaml"), folder.path("rules.yaml"));
    let (code, _, errors) = convert(&[&file, "-o", &rules]);
    assert!(code == 2 && errors.contains("--force"), "{errors}");
    assert_eq!(fs::read_to_string(&rules).expect("the file"), "mine");
    assert_eq!(convert(&[&file, "-o", &rules, "--force"]).0, 0);
    assert!(fs::read_to_string(&rules).expect("the file").contains("service:"));
    assert_eq!(fs::metadata(&rules).expect("the file").permissions().mode() & 0o077, 0o044);
}

#[test]
fn lost_setting_exits_with_one_unless_allowed() {
    let files = [("edge.yaml", DOMAIN), ("other.yaml", "a: b")];
    let folder = Folder::new("lost", &files);
    let (file, other) = (folder.path("edge.yaml"), folder.path("other.yaml"));
    let (code, _, json) = convert(&["--from", "ratelimit", "--json", &file, &other]);
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(code, 1);
    assert_eq!((&report["format"], &report["counts"]["lost"]), (&"ratelimit".into(), &1.into()));
    assert_eq!(report["findings"][2]["file"], other);
    assert_eq!(convert(&["--from", "ratelimit", "--allow-lost", &file, &other]).0, 0);
}

#[test]
fn files_without_a_known_format_exit_with_two() {
    let folder = Folder::new("unknown", &[("a.txt", "nothing"), ("long", &"x".repeat(17 << 20))]);
    let (code, rules, errors) = convert(&[&folder.path("a.txt")]);
    assert_eq!((code, rules.as_str()), (2, ""));
    assert_eq!(errors, "tidegate: the format is not recognized: select it with `--from`\n");
    let long = folder.path("long");
    assert_eq!(convert(&[&long]).2, format!("tidegate: {long}: the file is longer than 16 MiB\n"));
    let missing = folder.path("missing");
    assert_eq!(convert(&[&missing]).2, format!("tidegate: {missing}: the file does not exist\n"));
    assert_eq!(convert(&["--from", "apache", &missing]).0, 2);
}
