//! Misspelt keys.

use super::*;

#[test]
fn misspelt_required_key_is_not_reported_as_missing() {
    let text = "lissten: 127.0.0.1:1\nroutes:\n  - nam: a\n    upsteam: u\n    match: {}
    limits: [{ name: l, mode: PER_CLIENT, cliemt: ip, rate: 1, intervall: 1s }]\n";
    let errors = Config::parse_for_gateway(text).expect_err("errors").to_string();
    assert!(errors.matches("did you mean").count() == 5 && errors.ends_with("\n5 errors"), "{errors}");
}
