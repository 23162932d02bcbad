//! API keys and tokens: which requests pass, which limits count a request, and how keys are replaced.

mod authorization;
mod issuers;
mod key_sets;
mod keys;
mod layers;
mod load;
mod passwords;
mod reloads;
mod tokens;
mod under_load;
mod verification;

use crate::support::gateway::TestGateway;
use crate::support::process::RuleFile;
use crate::support::wire::raw::Message;

/// Starts a gateway with these `identities`, and one route with these keys.
fn start(identities: &str, route: &str) -> TestGateway {
    TestGateway::start(&rules(identities, route))
}

fn rules(identities: &str, route: &str) -> String {
    format!(
        "store: memory
identities: {{ {identities} }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: echo, {route} }}]
"
    )
}

/// A file of keys. No other test may use `name`.
fn key_file(name: &str, text: &str) -> RuleFile {
    RuleFile::new(&format!("keys-{name}"), text)
}

/// A key set in a file. No other test may use `name`.
fn key_set_file(name: &str, text: &str) -> RuleFile {
    RuleFile::new(&format!("jwks-{name}"), text)
}

/// The settings of tokens with this key set.
fn jwt(jwks: &str) -> String {
    format!("jwt: {{ jwks: '{jwks}', issuer: https://id.test/, audience: api }}")
}

/// Sends a request with this token.
async fn with_token(gateway: &TestGateway, token: &str) -> Message {
    gateway.get("/", &format!("Authorization: Bearer {token}\r\n")).await
}
