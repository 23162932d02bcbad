//! A client of the admin API, over TCP or a Unix socket. Other commands can use it for their requests.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::address::AdminAddress;
use super::table::printable;
use crate::cli::rule_file;
use tidegate_config::RuleFile;
use tidegate_proxy::upstream::http_client::exchange;

/// The longest time until the gateway accepts a connection, and until it has answered.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The largest response, in bytes.
const MAX_RESPONSE: usize = 64 << 20;

/// Follows an error about the token. The token file of the gateway has another format.
const TOKEN_HELP: &str = "; write the token, without its name, to a file for `--token-file`, or set TIDEGATE_TOKEN";

/// The address of a gateway's admin listener, and how to use it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ApiArgs {
    #[command(flatten)]
    gateway: AdminArgs,
    /// Write JSON
    #[arg(long)]
    pub(in crate::cli) json: bool,
}

/// The address of a gateway's admin listener, and the token.
#[derive(Clone, Debug, Args)]
pub(super) struct AdminArgs {
    /// Admin listener: `IP:PORT` or `unix:/path`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901", env = "TIDEGATE_ADMIN")]
    admin: AdminAddress,
    /// Rule file of the gateway; its `admin` replaces `--admin`
    #[arg(short, long, value_name = "FILE", value_parser = rule_file())]
    config: Option<RuleFile>,
    /// File with only the token; or set TIDEGATE_TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A gateway's admin listener, and the token for it.
#[derive(Debug)]
pub(super) struct AdminClient {
    address: AdminAddress,
    token: Option<HeaderValue>,
}

/// The error of a request to the admin API.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The token is not usable.
    #[error("cannot read the token: {0}")]
    Token(String),
    /// The rule file has no address.
    #[error("cannot find the admin listener: {0}")]
    NoAddress(String),
    /// There is no connection, or it broke.
    #[error("cannot reach the gateway at {0}: {1}")]
    Unreachable(String, String),
    /// The response is not from the API.
    #[error("unexpected response with status {0}")]
    Unexpected(u16),
    /// The gateway rejects the request: the status, the reason, and the JSON of the response.
    #[error("{1} ({0}){help}", help = if *.0 == 401 { TOKEN_HELP } else { "" })]
    Rejected(u16, String, Value),
}

impl ApiError {
    /// Returns the exit code: 1 if the gateway rejects the request, 2 if there is no answer.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Rejected(400..=499, ..) => 1,
            _ => 2,
        }
    }
}

impl ApiArgs {
    /// Returns the rule file, if the arguments have one.
    pub(in crate::cli) fn config(&self) -> Option<&RuleFile> {
        self.gateway.config.as_ref()
    }

    /// Sends a request, and returns the JSON of the response.
    pub(crate) fn send(&self, method: &str, target: &str) -> Result<Value, ApiError> {
        let values = self.send_all(&[(method, target.to_owned())])?;
        values.into_iter().next().ok_or(ApiError::Unexpected(0))
    }

    /// Sends a request with a JSON body, and returns the JSON of the response.
    pub(crate) fn send_body(&self, method: &str, target: &str, body: &Value) -> Result<Value, ApiError> {
        let values = self.exchange_all(&[(method, target.to_owned(), Bytes::from(body.to_string()))])?;
        values.into_iter().next().ok_or(ApiError::Unexpected(0))
    }

    /// Sends requests, and returns the JSON of the responses. `/readyz` may answer with 503.
    pub(crate) fn send_all(&self, requests: &[(&str, String)]) -> Result<Vec<Value>, ApiError> {
        let requests: Vec<_> =
            requests.iter().map(|(method, target)| (*method, target.clone(), Bytes::new())).collect();
        self.exchange_all(&requests)
    }

    fn exchange_all(&self, requests: &[(&str, String, Bytes)]) -> Result<Vec<Value>, ApiError> {
        let gateway = self.gateway.client()?;
        let unreachable = |error| gateway.unreachable(&error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unreachable)?;
        runtime.block_on(async {
            let mut values = Vec::new();
            for (method, target, body) in requests {
                let answer = async { read(gateway.request(method, target, body.clone()).await?).await };
                let answer = in_time(answer).await;
                let (status, body) = answer.map_err(unreachable)?;
                let value = serde_json::from_slice(&body).unwrap_or(Value::Null);
                values.push(checked(status, value, target)?);
            }
            Ok(values)
        })
    }
}

impl AdminArgs {
    /// Reads the address and the token.
    pub(super) fn client(&self) -> Result<AdminClient, ApiError> {
        let address = match &self.config {
            Some(file) => AdminAddress::of_rule_file(file).map_err(ApiError::NoAddress)?,
            None => self.admin.clone(),
        };
        Ok(AdminClient { address, token: self.token()? })
    }

    fn token(&self) -> Result<Option<HeaderValue>, ApiError> {
        let token = match &self.token_file {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                Some(text.map_err(|error| ApiError::Token(format!("{}: {error}", file.display())))?)
            }
            None => std::env::var("TIDEGATE_TOKEN").ok(),
        };
        let Some(token) = token.filter(|token| !token.trim().is_empty()) else { return Ok(None) };
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| ApiError::Token("it has characters that a header field cannot have".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

impl AdminClient {
    /// Sends a request, and returns the response before its end.
    pub(super) async fn stream(&self, method: &str, target: &str) -> Result<Response<Incoming>, ApiError> {
        let unreachable = |error| self.unreachable(&error);
        let sent = in_time(self.request(method, target, Bytes::new()));
        let response = sent.await.map_err(unreachable)?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let (status, body) = in_time(read(response)).await.map_err(unreachable)?;
        let rejected = checked(status, serde_json::from_slice(&body).unwrap_or(Value::Null), target);
        Err(rejected.err().unwrap_or(ApiError::Unexpected(status)))
    }

    pub(super) fn unreachable(&self, error: &io::Error) -> ApiError {
        ApiError::Unreachable(self.address.to_string(), error.to_string())
    }

    async fn request(&self, method: &str, target: &str, body: Bytes) -> io::Result<Response<Incoming>> {
        let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).map_err(io::Error::other)?);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let mut request = request.uri(target).body(Full::new(body)).map_err(io::Error::other)?;
        self.token.as_ref().map(|token| request.headers_mut().insert(AUTHORIZATION, token.clone()));
        match &self.address {
            AdminAddress::Tcp(address) => {
                let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
                // The API accepts only addresses as host.
                let host = HeaderValue::from_str(&stream.peer_addr()?.to_string()).map_err(io::Error::other)?;
                request.headers_mut().insert(HOST, host);
                exchange(stream, request).await
            }
            AdminAddress::Unix(path) => {
                let stream = timeout(CONNECT_TIMEOUT, UnixStream::connect(path)).await??;
                request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
                exchange(stream, request).await
            }
        }
    }
}

/// Waits for an answer.
async fn in_time<T>(answer: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(ANSWER_TIMEOUT, answer).await?
}

/// Returns the next bytes of the body; `None` at its end.
pub(super) async fn next(response: &mut Response<Incoming>) -> io::Result<Option<Bytes>> {
    loop {
        let Some(frame) = response.body_mut().frame().await else { return Ok(None) };
        if let Ok(bytes) = frame.map_err(io::Error::other)?.into_data() {
            return Ok(Some(bytes));
        }
    }
}

/// Returns the status and the whole body.
async fn read(response: Response<Incoming>) -> io::Result<(u16, Bytes)> {
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await.map_err(io::Error::other)?;
    Ok((status, body.to_bytes()))
}

fn checked(status: u16, value: Value, target: &str) -> Result<Value, ApiError> {
    match status {
        200 | 201 if !value.is_null() => Ok(value),
        503 if target == "/readyz" && !value.is_null() => Ok(value),
        status => match value["detail"].as_str() {
            Some(detail) => Err(ApiError::Rejected(status, printable(detail), value)),
            None => Err(ApiError::Unexpected(status)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_and_silence_have_different_exit_codes() {
        let rejected =
            checked(403, serde_json::json!({ "detail": "no\u{1b}" }), "/api/v1/audit").expect_err("an error");
        assert_eq!((rejected.to_string().as_str(), rejected.exit_code()), ("no\u{fffd} (403)", 1));
        assert_eq!(checked(503, serde_json::json!({ "detail": "x" }), "/a").expect_err("an error").exit_code(), 2);
        assert_eq!(checked(200, Value::Null, "/a").expect_err("an error").exit_code(), 2);
        assert!(checked(503, serde_json::json!({ "ready": false }), "/readyz").is_ok());
    }
}
