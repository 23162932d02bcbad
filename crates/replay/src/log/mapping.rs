//! Maps the fields of a JSON log to the parts of a request. The built-in formats are mappings too.

use std::sync::LazyLock;

/// Our own JSON format, and recorded requests.
pub(super) static TIDEGATE: LazyLock<Mapping> = LazyLock::new(|| builtin(TIDEGATE_FIELDS));
/// The JSON format of Istio. Envoy itself has no default.
pub(super) static ENVOY: LazyLock<Mapping> = LazyLock::new(|| builtin(ENVOY_FIELDS));
/// Caddy.
pub(super) static CADDY: LazyLock<Mapping> = LazyLock::new(|| builtin(CADDY_FIELDS));
/// The names of nginx's variables, then other usual names.
pub(super) static NGINX: LazyLock<Mapping> = LazyLock::new(|| builtin(NGINX_FIELDS));

// The time of the decision comes first: a line is written later, when the request ends.
const TIDEGATE_FIELDS: &str = "time=at,time=timestamp,time=time,client=client,client=peer,method=method,path=path,\
    query=query,status=status,host=host,route=route,id=request_id,limits=limits,\
    header.user-agent=user_agent,headers=headers,identity=identity";
const ENVOY_FIELDS: &str = "time=start_time,client=downstream_remote_address,method=method,method=:method,path=path,\
    path=:path,status=response_code,host=authority,host=:authority,id=request_id,id=x_request_id,\
    header.user-agent=user_agent,header.x-forwarded-for=x_forwarded_for";
const CADDY_FIELDS: &str = "time=ts,client=request.client_ip,client=request.remote_ip,client=request.remote_addr,\
    method=request.method,path=request.uri,host=request.host,status=status,headers=request.headers";
const NGINX_FIELDS: &str = "time=msec,time=time_iso8601,time=time_local,time=timestamp,time=@timestamp,time=time,\
    time=datetime,time=ts,client=client_ip,client=remote_addr,client=remote_ip,client=client,client=ip,\
    method=request_method,method=method,path=request_uri,path=uri,path=path,path=url,query=args,query=query_string,\
    request=request,status=status,status=status_code,status=code,host=http_host,host=host,id=request_id,id=req_id,\
    header.user-agent=http_user_agent,header.user-agent=user_agent,header.user-agent=agent,header.referer=http_referer,\
    header.referer=referer,header.referer=referrer,header.x-forwarded-for=http_x_forwarded_for,\
    header.x-forwarded-for=x_forwarded_for,header.*=http_*";

/// The names of the parts in a mapping.
const PARTS: [(&str, Part); 11] = [
    ("time", Part::Time),
    ("client", Part::Client),
    ("method", Part::Method),
    ("path", Part::Path),
    ("query", Part::Query),
    ("request", Part::Request),
    ("status", Part::Status),
    ("host", Part::Host),
    ("route", Part::Route),
    ("id", Part::Id),
    ("limits", Part::Limits),
];

/// The fields of a JSON log.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    pub(super) fields: Fields,
}

/// The fields of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    named: Vec<(Box<str>, Field)>,
    /// All fields with this prefix are header fields.
    header_prefix: Option<Box<str>>,
}

/// The meaning of a field.
#[derive(Clone, Debug, Default)]
pub(super) struct Field {
    /// Parts of the request. Each has the rank of the field among the alternatives for the part.
    pub(super) parts: Vec<(Part, usize)>,
    /// Whether the field is an object of header fields.
    pub(super) has_headers: bool,
    /// Whether the field is an object of verified credentials.
    pub(super) has_identity: bool,
    /// The fields of the object.
    pub(super) inner: Fields,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Time,
    Client,
    Method,
    Path,
    Query,
    /// The method and the target in one text.
    Request,
    Status,
    Host,
    Route,
    Id,
    /// The decision of the limits.
    Limits,
    Header(Box<str>),
}

/// The meaning of a field's name in an object.
pub(super) enum Found<'m, 'k> {
    Field(&'m Field),
    /// The name after the prefix of header fields.
    Header(&'k str),
}

impl Mapping {
    /// Parses a list such as `time=ts,client=request.ip,header.X-Api-Key=key`. If a part has several fields, the first
    /// that a line has is used. `headers=FIELD` maps an object of header fields.
    ///
    /// # Errors
    /// A part is unknown, or a part that a replay needs is missing.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut mapping, mut parsed) = (Self::default(), Vec::new());
        for entry in text.split(',').map(str::trim) {
            let field = entry.split_once('=').filter(|(_, field)| !field.is_empty());
            let (name, field) =
                field.ok_or_else(|| format!("`{entry}` in the mapping is not of the form `PART=FIELD`"))?;
            let header = name.strip_prefix("header.").filter(|name| !name.is_empty());
            match (header, PARTS.iter().find(|(part, _)| *part == name)) {
                _ if name == "identity" => mapping.fields.insert(field, &|field| field.has_identity = true),
                _ if name == "headers" => mapping.fields.insert(field, &|field| field.has_headers = true),
                (Some("*"), _) => mapping.fields.header_prefix = Some(field.trim_end_matches('*').into()),
                (Some(header), _) => mapping.add(Part::Header(header.into()), field, &mut parsed),
                (None, Some((_, part))) => mapping.add(part.clone(), field, &mut parsed),
                (None, None) => return Err(unknown(name)),
            }
        }
        for (name, part) in [("time", Part::Time), ("method", Part::Method), ("path", Part::Path)] {
            let is_needed = part == Part::Time || !parsed.contains(&Part::Request);
            if is_needed && !parsed.contains(&part) {
                return Err(format!("the mapping has no `{name}`: add `{name}=FIELD`"));
            }
        }
        Ok(mapping)
    }

    fn add(&mut self, part: Part, field: &str, parsed: &mut Vec<Part>) {
        let rank = parsed.iter().filter(|other| **other == part).count();
        self.fields.insert(field, &|field| field.parts.push((part.clone(), rank)));
        parsed.push(part);
    }
}

impl Fields {
    /// Finds a field by its name, regardless of case.
    pub(super) fn find<'m, 'k>(&'m self, name: &'k str) -> Option<Found<'m, 'k>> {
        let named = self.named.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        let header = || name.strip_prefix(self.header_prefix.as_deref()?).filter(|header| !header.is_empty());
        named.map(|(_, field)| Found::Field(field)).or_else(|| header().map(Found::Header))
    }

    /// Inserts a field. A dot separates the names of nested objects, or is part of the name.
    fn insert(&mut self, path: &str, change: &dyn Fn(&mut Field)) {
        change(self.entry(path));
        if let Some((object, rest)) = path.split_once('.') {
            self.entry(object).inner.insert(rest, change);
        }
    }

    fn entry(&mut self, name: &str) -> &mut Field {
        let position = self.named.iter().position(|(other, _)| other.eq_ignore_ascii_case(name));
        let position = position.unwrap_or_else(|| {
            self.named.push((name.into(), Field::default()));
            self.named.len() - 1
        });
        &mut self.named[position].1
    }
}

/// Parses the mapping of a format. A test parses all of them.
fn builtin(fields: &str) -> Mapping {
    Mapping::parse(fields).unwrap_or_default()
}

fn unknown(name: &str) -> String {
    let names = PARTS.map(|(part, _)| part).join(", ");
    format!("unknown part `{name}` in the mapping: use {names}, headers or header.NAME")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_mappings_are_valid() {
        for fields in [TIDEGATE_FIELDS, ENVOY_FIELDS, CADDY_FIELDS, NGINX_FIELDS] {
            Mapping::parse(fields).unwrap();
        }
    }

    #[test]
    fn invalid_mappings_are_rejected() {
        for (text, expected) in [
            ("", "`` in the mapping is not of the form `PART=FIELD`"),
            ("time", "`time` in the mapping is not of the form `PART=FIELD`"),
            ("time=", "`time=` in the mapping is not of the form `PART=FIELD`"),
            ("method=m,path=p", "the mapping has no `time`: add `time=FIELD`"),
            ("time=t,path=p", "the mapping has no `method`: add `method=FIELD`"),
            ("time=t,method=m", "the mapping has no `path`: add `path=FIELD`"),
            (
                "time=t,url=u",
                "unknown part `url` in the mapping: use time, client, method, path, query, request, status, host, route, \
                 id, limits, headers or header.NAME",
            ),
        ] {
            assert_eq!(Mapping::parse(text).unwrap_err(), expected);
        }
        assert!(Mapping::parse("time=t,header.=x,request=r").unwrap_err().starts_with("unknown part `header.`"));
        Mapping::parse("time=t, request=r").unwrap();
    }
}
