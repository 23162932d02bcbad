//! The action of a route for requests that its limits admit.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode};

use crate::template::{Part, Template, Values, Variable};
use tidegate_limit::text::words::words;

/// The action for requests that the limits of a route admit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is forwarded to the upstream with this name; `None` is the inner service of a Tower layer.
    Forward(Option<Arc<str>>),
    /// The response sends the client to another URL.
    Redirect(Box<Redirect>),
    /// The response is fixed.
    Respond(Box<FixedResponse>),
}

/// A redirect to another URL, which the gateway sends itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The `Location`.
    pub to: Template,
    /// The status, 301 to 308.
    pub status: StatusCode,
}

/// A response of the rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedResponse {
    /// The status.
    pub status: StatusCode,
    /// The content type; `None` without a body.
    pub content_type: Option<HeaderValue>,
    /// The body.
    pub body: Arc<[u8]>,
    /// Further fields.
    pub headers: HeaderMap,
}

/// The response to requests that the limits of a route reject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// A text of the rule file.
    Text(RejectionText),
    /// The errors of a well-known API.
    Preset(RejectionPreset),
}

words! {
    /// The APIs whose errors a rejection can have.
    pub enum RejectionPreset {
        /// Errors of OpenAI's API.
        OpenAi = "openai",
        /// Errors of Anthropic's API.
        Anthropic = "anthropic",
        /// Errors of JSON-RPC 2.0, and so of MCP.
        JsonRpc = "jsonrpc",
    }
}

/// A rejection with a text of the rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectionText {
    /// The status.
    pub status: StatusCode,
    /// The content type.
    pub content_type: HeaderValue,
    /// The body.
    pub body: Template,
}

// === impl Action ===

impl Action {
    /// Returns the name of the upstream, if the action forwards to one.
    pub fn upstream(&self) -> Option<&Arc<str>> {
        match self {
            Self::Forward(upstream) => upstream.as_ref(),
            Self::Redirect(_) | Self::Respond(_) => None,
        }
    }

    /// Returns the status of the response, unless the action forwards.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Forward(_) => None,
            Self::Redirect(redirect) => Some(redirect.status),
            Self::Respond(response) => Some(response.status),
        }
    }

    /// Returns `true` for a fixed response with a 5xx status, as during a maintenance.
    pub fn is_maintenance(&self) -> bool {
        matches!(self, Self::Respond(response) if response.status.is_server_error())
    }
}

// === impl Rejection ===

impl Rejection {
    /// Returns the status. With JSON-RPC, calls with an id get 200.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Text(text) => text.status,
            Self::Preset(_) => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Returns the body of the rule file.
    pub(super) fn template(&self) -> Option<&Template> {
        match self {
            Self::Text(text) => Some(&text.body),
            Self::Preset(_) => None,
        }
    }

    /// Returns `true` if the response depends on the body of the request.
    pub fn reads_body(&self) -> bool {
        *self == Self::Preset(RejectionPreset::JsonRpc)
    }
}

// === impl Redirect ===

impl Redirect {
    /// Returns the `Location` for a request. Returns `None` if it is too long, or if the request has no host.
    #[doc(hidden)]
    pub fn location(&self, values: &Values<'_>) -> Option<HeaderValue> {
        let mut to = self.to.render(values)?;
        if to.starts_with('/') {
            // Without this, `//` would start an authority.
            let extra = to.len() - to.trim_start_matches(['/', '\\']).len() - 1;
            to.drain(..extra);
        }
        HeaderValue::try_from(to).ok()
    }

    /// Returns `true` if requests cannot choose the server of a target: it is an `http` or `https` URL whose authority
    /// is literal or `{host}`, or an absolute path.
    pub fn has_safe_authority(to: &Template) -> bool {
        match to.parts() {
            [Part::Variable(Variable::Path | Variable::Uri), ..] => true,
            [Part::Text(text), ..] if text.starts_with('/') => !text.starts_with("//") && !text.starts_with("/\\"),
            [Part::Text(text), rest @ ..] => {
                let Some(authority) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
                    return false;
                };
                match (authority.find(['/', '?', '#', '\\']), rest) {
                    (Some(end), _) => is_authority(&authority[..end]) && end > 0,
                    (None, [Part::Variable(Variable::Host), rest @ ..]) => authority.is_empty() && ends_authority(rest),
                    (None, rest) => !authority.is_empty() && is_authority(authority) && ends_authority(rest),
                }
            }
            _ => false,
        }
    }
}

fn is_authority(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
}

/// Returns `true` if no value can extend the authority before these parts.
fn ends_authority(parts: &[Part]) -> bool {
    match parts {
        [] | [Part::Variable(Variable::Path | Variable::Uri), ..] => true,
        // A port follows `{host}`.
        [Part::Text(text), rest @ ..] => match text.find(['/', '?', '#']) {
            Some(0) => true,
            end => {
                let port = &text[..end.unwrap_or(text.len())];
                let is_port = port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
                is_port && (end.is_some() || ends_authority(rest))
            }
        },
        [Part::Variable(_), ..] => false,
    }
}
