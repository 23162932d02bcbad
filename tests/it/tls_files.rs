//! Errors of certificate and key files for TLS to clients. Each error names the file and the fault.

use tidegate::Gateway;

use crate::support::listening::address;
use crate::support::process::{Program, RuleFile, tidegate};
use crate::support::tls::Authority;

/// Returns a rule file with this `tls` of a listener.
fn rules(tls: &str) -> String {
    format!(
        "listen: {{ address: '127.0.0.1:0', tls: {{ {tls} }} }}
admin: off
upstreams: {{ echo: {{ targets: [builtin:echo] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: echo }}]"
    )
}

/// Returns the errors of this `tls` of a listener; empty if it is valid.
fn errors(tls: &str) -> String {
    Gateway::parse_config(&rules(tls)).err().map(|problems| problems.to_string()).unwrap_or_default()
}

fn authority() -> Authority {
    let authority = Authority::new();
    authority.sign("good", &["good.example"]);
    authority.sign("other", &["other.example"]);
    authority.sign("nameless", &["192.0.2.1"]);
    authority.write("bad-list", "-----BEGIN X509 CRL-----\nMIIB\n-----END X509 CRL-----\n");
    authority.write("text", "no certificate");
    authority.write("cut-off", "-----BEGIN CERTIFICATE-----\nMIIB");
    authority.write("beginning-cut-off", "-----BEGIN CERTIFICATE\nMIIB");
    authority.write("no-base64", "-----BEGIN CERTIFICATE-----\n(!)\n-----END CERTIFICATE-----\n");
    authority.write("short.key", include_str!("../fixtures/short-rsa.key"));
    authority.write("long", &" ".repeat((1 << 20) + 1));
    authority.write("other-bytes", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    authority
}

#[test]
fn error_names_the_file_and_its_fault() {
    let authority = authority();
    let errors_of = |cert: &str, key: &str, more: &str| {
        let (cert, key) = (authority.path(cert), authority.path(key));
        errors(&format!("certificates: [{{ cert: '{cert}', key: '{key}'{more} }}]"))
    };
    assert_eq!(errors_of("good.pem", "good.key", ""), "");
    for (cert, key, named, fault) in [
        ("missing", "good.key", "missing", "cannot be read: No such file or directory"),
        ("", "good.key", "", "cannot be read: Is a directory"),
        ("text", "good.key", "text", "is not PEM"),
        ("cut-off", "good.key", "cut-off", "is not PEM: a line `-----END ...-----` is missing\n"),
        (
            "beginning-cut-off",
            "good.key",
            "beginning-cut-off",
            "is not PEM: a line `-----BEGIN ...-----` is malformed\n",
        ),
        ("no-base64", "good.key", "no-base64", "is not PEM: the text between two marker lines is not base64\n"),
        ("long", "good.key", "long", "is longer than 1 MiB\n"),
        ("good.pem", "long", "long", "is longer than 1 MiB\n"),
        ("other-bytes", "good.key", "other-bytes", "contains a malformed certificate"),
        ("good.key", "good.key", "good.key", "contains no certificate"),
        ("good.pem", "missing", "missing", "cannot be read: No such file or directory"),
        ("good.pem", "good.pem", "good.pem", "contains no unencrypted private key in PEM"),
        ("good.pem", "other.key", "other.key", "is not the key of the certificate"),
        ("good.pem", "short.key", "short.key", "is an RSA key of 1024 bits; 2048 to 4096 bits are supported\n"),
    ] {
        let error = errors_of(cert, key, "");
        let expected = format!("`{}` {fault}", authority.path(named));
        assert!(error.contains(&expected) && error.contains("1 error"), "{expected}\n{error}");
        // Only a missing file needs the hint about relative paths.
        assert_eq!(error.contains("a relative path starts at"), fault.contains("No such file"), "{error}");
    }
    let ocsp = errors_of("good.pem", "good.key", &format!(", ocsp: '{}'", authority.path("text")));
    assert!(ocsp.contains("text` is not an OCSP response in DER"), "{ocsp}");
    for (crl, fault) in [
        ("missing", "cannot be read: No such file or directory"),
        ("text", "is not PEM"),
        ("good.pem", "contains no revocation list"),
        ("bad-list", "contains an unusable revocation list"),
    ] {
        let (ca, crl) = (authority.path("ca.pem"), authority.path(crl));
        let (cert, key) = (authority.path("good.pem"), authority.path("good.key"));
        let tls =
            format!("certificates: [{{ cert: '{cert}', key: '{key}' }}], client_auth: {{ ca: '{ca}', crl: '{crl}' }}");
        let error = errors(&tls);
        assert!(error.contains(&format!("`{crl}` {fault}")) && error.contains("1 error"), "{fault}\n{error}");
    }
}

/// Regression test: an endless file took all memory, and a named pipe blocked its reader.
#[test]
fn only_regular_files_are_opened() {
    let authority = authority();
    let pipe = authority.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    for path in ["/dev/null", "/dev/zero", &pipe] {
        let (cert, key) = (authority.path("good.pem"), authority.path("good.key"));
        for tls in [
            format!("certificates: [{{ cert: '{path}', key: '{key}' }}]"),
            format!("certificates: [{{ cert: '{cert}', key: '{path}' }}]"),
            format!("certificates: [{{ cert: '{cert}', key: '{key}', ocsp: '{path}' }}]"),
            format!("certificates: [{{ cert: '{cert}', key: '{key}' }}], client_auth: {{ ca: '{path}' }}"),
        ] {
            let error = errors(&tls);
            assert!(error.contains(&format!("`{path}` is not a regular file\n")), "{error}");
        }
        let login = format!("store: {{ url: 'redis://gate@localhost', password_file: '{path}' }}\nroutes: []");
        let error = Gateway::parse_config(&login).expect_err("an error").to_string();
        assert!(error.contains(&format!("`{path}` is not a regular file\n")), "{error}");
    }
}

/// Regression test: the log said `http://`, where a browser gets an error.
#[test]
fn tls_listener_is_logged_with_https() {
    let authority = authority();
    let (cert, key) = (authority.path("good.pem"), authority.path("good.key"));
    let file = RuleFile::new("scheme", &rules(&format!("certificates: [{{ cert: '{cert}', key: '{key}' }}]")));
    let mut program = Program::start(&mut tidegate(&["run", "-c", file.path()]));
    address(&mut program.stderr, "listening on https://");
}

#[test]
fn certificate_without_host_name_must_be_first() {
    let authority = authority();
    let one = |name: &str| {
        let (cert, key) = (authority.path(&format!("{name}.pem")), authority.path(&format!("{name}.key")));
        format!("{{ cert: '{cert}', key: '{key}' }}")
    };
    assert_eq!(errors(&format!("certificates: [{}, {}]", one("nameless"), one("good"))), "");
    let error = errors(&format!("certificates: [{}, {}]", one("good"), one("nameless")));
    assert!(error.contains("contains no host name that a client could request"), "{error}");
}

#[test]
fn all_invalid_files_are_reported_together() {
    let authority = authority();
    let (good, key) = (authority.path("good.pem"), authority.path("good.key"));
    let error = errors(&format!(
        "certificates: [{{ cert: one, key: '{key}' }}, {{ cert: '{good}', key: two }}], client_auth: {{ ca: three }}, \
         min_version: 1.1"
    ));
    for file in ["`one` cannot be read", "`two` cannot be read", "`three` cannot be read", "`min_version`"] {
        assert!(error.contains(file), "{file}\n{error}");
    }
    assert!(error.contains("4 errors"), "{error}");
}
