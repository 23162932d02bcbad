//! Formats the conditions of routes, without the values of header fields, parameters and cookies: these are often secrets.

use std::fmt;

use crate::condition::Condition;
use crate::route::{ValueCondition, ValueSource, ValueTest};

impl fmt::Display for Condition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(paths) => write!(f, "path {}", any_of(paths.iter())),
            Self::Host(hosts) => write!(f, "host {}", any_of(hosts.iter())),
            Self::Methods(methods) => write!(f, "method {}", any_of(methods.iter())),
            Self::Scheme(scheme) => write!(f, "scheme {}", scheme.name()),
            Self::Listener(names) => write!(f, "listener {}", any_of(names.iter())),
            Self::Value(value) => value.fmt(f),
            Self::Clients(clients) => write!(f, "client in {clients}"),
            Self::Identity(condition) => write!(f, "identity {condition}"),
            Self::Not(not) => {
                let conditions: Vec<_> = not.conditions().map(|condition| condition.to_string()).collect();
                write!(f, "not ({})", conditions.join(", "))
            }
        }
    }
}

impl fmt::Display for ValueCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            ValueSource::Header(name) => write!(f, "header {name}"),
            ValueSource::Query(name) => write!(f, "query {name}"),
            ValueSource::Cookie(name) => write!(f, "cookie {name}"),
            ValueSource::Json(pointer) => write!(f, "json {pointer}"),
        }?;
        match self.test {
            ValueTest::Present => f.write_str(" present"),
            ValueTest::Absent => f.write_str(" absent"),
            ValueTest::OneOf(_) => Ok(()),
        }
    }
}

fn any_of<T: fmt::Display>(all: impl Iterator<Item = T>) -> String {
    all.map(|text| text.to_string()).collect::<Vec<_>>().join(" or ")
}
