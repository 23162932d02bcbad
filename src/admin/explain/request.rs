//! The body of `POST /api/v1/explain`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, Version};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::admin::only_object::OnlyObject;
use tidegate_replay::explain::{ExplainedRequest, field, method, target};
use tidegate_rules::request::facts::TlsPeer;

/// The highest number of header fields: the maximum of `max_fields` of a listener.
const MAX_FIELDS: usize = 1_000;

/// A request to explain.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ExplainRequest)]
pub(in crate::admin) struct Request {
    #[schema(example = "GET", pattern = "^[A-Z]{1,16}$")]
    method: String,
    /// A URL; a path needs the header `Host`.
    #[schema(example = "https://api.example/orders?id=1")]
    url: String,
    #[serde(default)]
    #[schema(value_type = std::collections::BTreeMap<String, Values>)]
    headers: Headers,
    /// The IP address of the peer.
    #[serde(default = "localhost")]
    #[schema(value_type = String, example = "192.0.2.1", default = "127.0.0.1")]
    peer: IpAddr,
    #[serde(default)]
    version: HttpVersion,
    /// The names in the client certificate.
    #[serde(default)]
    #[schema(value_type = Certificate)]
    tls: OnlyObject<Certificate>,
    /// The name of the listener. By default, the only one that serves the scheme of the URL.
    listener: Option<String>,
    /// The body, if limits read it.
    body: Option<String>,
}

/// The header fields, in their order. A map would drop repeated names, which are errors.
#[derive(Debug, Default)]
struct Headers(Vec<(String, Values)>);

/// The value of a header field, or the values of its lines.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a header field must be a text or a list of texts")]
#[schema(as = HeaderValues)]
enum Values {
    One(String),
    Lines(Vec<String>),
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
enum HttpVersion {
    /// A request that needs no host.
    #[serde(rename = "HTTP/1.0")]
    Http10,
    #[default]
    #[serde(rename = "HTTP/1.1")]
    Http11,
}

/// The names in a client certificate.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ClientCertificate)]
struct Certificate {
    subject: Option<String>,
    san: Option<String>,
}

fn localhost() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

impl Request {
    /// Parses the parts of the request.
    pub(super) fn parse(self) -> Result<ExplainedRequest, String> {
        let Self { method: word, url, headers: Headers(sent), peer, version, tls: OnlyObject(tls), listener, body } =
            self;
        let mut headers = HeaderMap::new();
        for (name, values) in sent {
            let values = match values {
                Values::One(value) => vec![value],
                Values::Lines(values) => values,
            };
            if name.parse().is_ok_and(|name: http::HeaderName| headers.contains_key(name)) {
                return Err(format!("`headers`: `{name}` occurs twice; write a list of values"));
            }
            for value in values {
                let (name, value) = field(&name, &value).map_err(|error| format!("`headers`: `{name}` {error}"))?;
                if headers.len() >= MAX_FIELDS {
                    return Err(format!("`headers` has more than {MAX_FIELDS} fields"));
                }
                headers.append(name, value);
            }
        }
        Ok(ExplainedRequest {
            method: method(&word).map_err(|error| format!("`method`: {error}"))?,
            url: target(&url).map_err(|error| format!("`url`: {error}"))?,
            headers,
            version: match version {
                HttpVersion::Http10 => Version::HTTP_10,
                HttpVersion::Http11 => Version::HTTP_11,
            },
            peer,
            tls: TlsPeer::new(tls.subject, tls.san),
            listener: listener.map(Into::into),
            body: body.map(String::into_bytes),
        })
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of header fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, values)) = map.next_entry::<String, Values>()? {
                    fields.push((name, values));
                }
                Ok(Headers(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}
