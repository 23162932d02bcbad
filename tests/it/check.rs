//! `tidegate check`: a fixture for each kind of error in a rule file, with the messages in a snapshot.

#![expect(clippy::expect_used, reason = "a test fails by panicking, its helpers too")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidegate_limit::AlgorithmName;

use crate::support::process::RuleFile;
use crate::support::tls::Authority;

/// Returns the exit code and the output of `tidegate check FILE`.
fn check_file(file: &Path) -> (i32, String) {
    check(&[&file.to_string_lossy()], "")
}

/// Returns the exit code and the output of `tidegate check` with these arguments and this standard input.
fn check(args: &[&str], stdin: &str) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("check").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program");
    child.stdin.take().expect("a pipe").write_all(stdin.as_bytes()).expect("the program reads its input");
    let output = child.wait_with_output().expect("the program ends");
    (output.status.code().expect("an exit code"), String::from_utf8(output.stdout).expect("messages are UTF-8"))
}

/// Returns the fixtures by relative paths, because messages contain the path.
fn fixtures() -> Vec<PathBuf> {
    let folder = fs::read_dir("tests/fixtures/config").expect("fixtures");
    let mut files: Vec<_> = folder.map(|entry| entry.expect("a fixture").path()).collect();
    files.sort();
    files
}

#[test]
fn every_error_has_a_location_and_a_help() {
    // A new algorithm changes no message.
    let algorithms: Vec<_> = AlgorithmName::ALL.iter().map(|name| format!("`{}`", name.name())).collect();
    let algorithms = algorithms.join(", ");
    for file in fixtures() {
        let (code, output) = check_file(&file);
        let name = file.file_stem().expect("a name").to_string_lossy();
        assert_eq!(code, 1, "{name}: {output}");
        let output = output.replace(&algorithms, "[the algorithms]");
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name.into_owned(), output);
        });
    }
}

#[test]
fn messages_contain_no_secrets() {
    for file in fixtures() {
        let (_, output) = check_file(&file);
        assert!(!output.to_lowercase().contains("hunter2") && !output.contains("1234567890123456"), "{output}");
    }
}

#[test]
fn rule_files_of_the_repository_have_no_errors() {
    let files = rule_files(Path::new("config"));
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        assert_eq!(check_file(&file), (0, format!("{}: no errors\n", file.display())));
    }
}

/// Returns all rule files below a folder.
fn rule_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let here = files.into_iter().filter(|file| file.extension().is_some_and(|ending| ending == "yaml"));
    here.chain(folders.iter().flat_map(|folder| rule_files(folder))).collect()
}

#[test]
fn unreadable_rule_file_has_its_own_exit_code() {
    let (code, output) = check_file(Path::new("tests/fixtures/config/none.yaml"));
    assert_eq!(code, 2);
    assert!(output.starts_with("tests/fixtures/config/none.yaml: cannot be read: "), "{output}");
}

#[test]
fn large_or_non_utf8_file_is_an_error() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (name, bytes, place) in [
        ("too_large.yaml", vec![b'#'; (1 << 20) + 1], "1:1: the file is larger than 1048576 bytes"),
        ("latin_1.yaml", b"# a comment\n# caf\xe9\n".to_vec(), "2:6: byte 0xe9 is not UTF-8"),
    ] {
        let file = folder.join(name);
        fs::write(&file, bytes).expect("written");
        let (code, output) = check_file(&file);
        assert_eq!(code, 1, "{output}");
        assert!(output.contains(place), "{output}");
    }
}

const RULES: &str = "listen: 127.0.0.1:8080
admin: off
upstreams: { echo: { targets: [builtin:echo] } }
routes: [{ name: rest, match: { path: /** }, upstream: echo }]
";

#[test]
fn rule_file_is_an_argument_an_option_or_standard_input() {
    let file = RuleFile::new("named-in-three-ways", RULES);
    let expected = (0, format!("{}: no errors\n", file.path()));
    assert_eq!(check(&[file.path()], ""), expected);
    assert_eq!(check(&["-c", file.path()], ""), expected);
    assert_eq!(check(&["-"], RULES), (0, "<stdin>: no errors\n".to_owned()));
    let (code, output) = check(&["-c", "-"], "listen: nowhere\nroutes: []\n");
    assert!(code == 1 && output.starts_with("<stdin>:1:9: `nowhere` "), "{output}");
    let (code, _) = check(&[file.path(), "-c", file.path()], "");
    assert_eq!(code, 2);
}

#[test]
fn literal_star_in_a_header_match_is_a_warning() {
    let rules = RULES.replace("path: /**", "headers: { X-Api-Key: '*' }");
    let (code, output) = check(&["-"], &rules);
    assert_eq!(code, 0);
    let warning = "<stdin>:4:55: warning: `*` matches only this text\n  help: ";
    assert!(output.starts_with(warning) && output.ends_with("<stdin>: no errors\n"), "{output}");
}

#[test]
fn strip_prefix_that_no_path_has_is_a_warning() {
    let route = |path: &str| {
        RULES
            .replace("path: /**", path)
            .replace("upstream: echo }]", "upstream: echo, rewrite: { strip_prefix: /orders/v1 } }]")
    };
    for path in ["path: /**", "path: /orders/**", "path: '/{a}/v1/x'", "path: [/order, /orders/v1]", "methods: [GET]"] {
        assert_eq!(check(&["-"], &route(path)), (0, "<stdin>: no errors\n".to_owned()), "{path}");
    }
    for path in ["path: /order/**", "path: /orders", "path: [/orders/v2/**, '/{a}']"] {
        let (code, output) = check(&["-"], &route(path));
        let warning =
            "warning: `/orders/v1` is never at the start of a path of this route\n  help: the route matches `/";
        assert!(code == 0 && output.contains(warning), "{path}: {output}");
    }
}

#[test]
fn unknown_tiers_of_api_keys_are_warnings() {
    let keys = RuleFile::new(
        "keys-with-tiers",
        "k-1: { id: a, tier: pro }\nk-2: { id: b, tier: por }\nk-3: { id: c, tier: x }\n",
    );
    let rules = |limit: &str| {
        let identities = format!("identities: {{ keys: {{ header: X-Api-Key, file: '{}' }} }}\n", keys.path());
        let tiers = "tiers: { free: { rate: 1, interval: 1m }, pro: { rate: 5, interval: 1m } }\n";
        let limit = format!("upstream: echo, limits: [{{ name: a, mode: PER_CLIENT, client: ip, {limit} }}] }}]");
        RULES.replace("upstream: echo }]", &limit) + &identities + tiers
    };
    let (code, output) = check(&["-"], &rules("tier: { by: 'key:tier', default: free }"));
    let warning = |tier: &str, line: u32, help: &str| {
        format!(
            "unknown tier `{tier}` on line {line} of `{}`: its clients get the default\n  help: {help}\n",
            keys.path()
        )
    };
    assert_eq!(code, 0);
    assert!(output.contains(&warning("por", 2, "did you mean `pro`?")), "{output}");
    assert!(output.contains(&warning("x", 3, "the tiers are `free`, `pro`")), "{output}");
    assert_eq!(output.matches("warning").count(), 2, "{output}");
    // No limit has the rate of the key's tier.
    for limit in ["rate: 1, interval: 1m", "tier: { by: 'key:plan', default: free }"] {
        assert_eq!(check(&["-"], &rules(limit)), (0, "<stdin>: no errors\n".to_owned()), "{limit}");
    }
}

#[test]
fn relative_paths_start_at_the_rule_files_folder() {
    let authority = Authority::new();
    let upstream = "targets: [https://localhost], tls: { ca: ca.pem }";
    let rules = RULES.replace("targets: [builtin:echo]", upstream) + "access_log: ./access.log\n";
    authority.write("relative.yaml", &rules);
    let file = authority.path("relative.yaml");
    assert_eq!(check(&[&file], ""), (0, format!("{file}: no errors\n")));
    let (code, output) = check(&["-"], &rules);
    assert!(code == 1 && output.contains("`ca.pem` cannot be read"), "{output}");
}

#[test]
fn check_without_files_opens_none() {
    let tls = "{ address: 127.0.0.1:8080, tls: { certificates: [{ cert: none.pem, key: none.key }], client_auth: { ca: none.pem } } }";
    let store =
        "store: { url: 'rediss://db', password_file: none, tls: { ca: none.pem } }\naccess_log: none/access.log\n";
    let upstream = "targets: [https://localhost], tls: { ca: none.pem }";
    let rules = RULES.replace("127.0.0.1:8080", tls).replace("targets: [builtin:echo]", upstream) + store;
    let (code, output) = check(&["-"], &rules);
    assert!(code == 1 && output.matches("none").count() > 5, "{output}");
    assert_eq!(check(&["--no-files", "-"], &rules), (0, "<stdin>: no errors\n".to_owned()));
}

#[test]
fn check_without_files_accepts_unknown_values() {
    let rules = RULES.replace("admin: off", "admin: ${TIDEGATE_NOT_SET}").replace(
        "name: rest",
        "name: '${TIDEGATE_NOT_SET}-a', request_headers: { set: { X-Key: '${file:none/key}' } }",
    );
    let (code, output) = check(&["-"], &rules);
    assert!(code == 1 && output.ends_with("3 errors\n"), "{output}");
    let help = "\n  help: the value was not checked: `check` without `--no-files` does so\n";
    let warning = |place: &str, cause: &str| format!("<stdin>:{place}: warning: unknown value: {cause}{help}");
    let not_set = "the variable `TIDEGATE_NOT_SET` is not set";
    let expected = [
        warning("2:8", not_set),
        warning("4:18", not_set),
        warning("4:76", "the file `none/key` is not read"),
        "<stdin>: no errors, 3 unknown values\n".to_owned(),
    ];
    assert_eq!(check(&["--no-files", "-"], &rules), (0, expected.concat()));
    let (code, output) = check(&["--no-files", "-"], &rules.replace("upstream: echo", "upstream: ecko"));
    assert!(code == 1 && output.contains("unknown upstream `ecko`") && output.ends_with("1 error\n"), "{output}");
}

#[test]
fn rule_file_with_only_a_service_is_valid() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("check-service-{}", std::process::id()));
    fs::create_dir_all(folder.join("ratelimit")).expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("written");
    write("rules.yaml", "service: { grpc: 127.0.0.1:8081, algorithm: fixed_window, descriptors: ratelimit/*.yaml }\n");
    let limit = |unit: &str| {
        format!("domain: edge\ndescriptors: [{{ key: user, rate_limit: {{ unit: {unit}, requests_per_unit: 5 }} }}]\n")
    };
    write("ratelimit/edge.yaml", &limit("minute"));
    let file = folder.join("rules.yaml");
    assert_eq!(check_file(&file), (0, format!("{}: no errors\n", file.display())));
    write("ratelimit/edge.yaml", &limit("week"));
    let (code, output) = check_file(&file);
    let warning = "/ratelimit/edge.yaml:2:48: warning: envoyproxy/ratelimit has other windows of a week";
    assert!(code == 0 && output.contains(warning), "{output}");
    write("ratelimit/other.yaml", &limit("fortnight"));
    let (code, output) = check_file(&file);
    assert!(code == 1 && output.contains("/ratelimit/other.yaml:2:48: `fortnight` is not a unit"), "{output}");
    fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn maintenance_route_is_a_warning() {
    let rules = RULES.replace("routes: [", "routes: [{ name: down, match: {}, respond: { status: 503 } }, ");
    let warning = "<stdin>:4:10: warning: route `down` answers all requests of the route `rest`\n  help: remove it after \
                   the maintenance, or narrow it\n<stdin>: no errors\n";
    assert_eq!(check(&["-"], &rules), (0, warning.to_owned()));
    // Offices still reach the service.
    let narrow = rules.replace("match: {}", "match: { not: { clients: 10.0.0.0/8 } }");
    assert_eq!(check(&["-"], &narrow), (0, "<stdin>: no errors\n".to_owned()));
    let (code, output) = check(&["-"], &rules.replace("status: 503", "status: 410"));
    assert!(code == 1 && output.contains("route `rest` is unreachable"), "{output}");
    let more: Vec<_> =
        (0..12).map(|i| format!("{{ name: r{i}, match: {{ path: /{i} }}, upstream: echo }}, ")).collect();
    let many = rules.replace("{ name: rest", &format!("{}{{ name: rest", more.concat()));
    let (code, output) = check(&["-"], &many);
    assert!(code == 0 && output.contains(" routes `r0`, `r1`, ") && output.contains("`r9` and 3 more\n"), "{output}");
}
