//! Misspelt keys.

use super::*;

#[test]
fn misspelt_required_key_is_not_reported_as_missing() {
    let text = "lissten: 127.0.0.1:1\nroutes:\n  - nam: a\n    upsteam: u\n    match: {}
    limits: [{ name: l, mode: PER_CLIENT, cliemt: ip, rate: 1, intervall: 1s }]\n";
    let errors = Config::parse_for_gateway(text, &LibraryFiles).expect_err("errors").to_string();
    assert!(errors.matches("did you mean").count() == 5 && errors.ends_with("\n5 errors"), "{errors}");
}

/// Regression test: without `match`, the keys of the route were read as names of header fields.
#[test]
fn misspelt_key_of_a_route_is_no_header_field() {
    let errors = problems("routes:\n  - name: a\n    max_boddy: 1KiB\n");
    assert!(errors.contains("unknown key `max_boddy`") && !errors.contains("no rule can read it"), "{errors}");
}
