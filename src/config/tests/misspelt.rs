//! Keys that are nearly others.

use super::*;

#[test]
fn a_needed_key_that_is_misspelt_is_not_missing_as_well() {
    let text = "lissten: 127.0.0.1:1\nroutes:\n  - nam: a\n    upsteam: u\n    match: {}
    limits: [{ name: l, mode: PER_CLIENT, cliemt: ip, rate: 1, intervall: 1s }]\n";
    let said = Config::parse_for_gateway(text).expect_err("errors").to_string();
    assert!(said.matches("did you mean").count() == 5 && said.ends_with("\n5 errors"), "{said}");
}
