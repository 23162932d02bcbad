//! Formats the fields of a human-readable log line.

use std::error::Error;
use std::fmt;

use tracing::field::{Field, Visit};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};

/// Formats fields as the library does, but omits some of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    /// Names of the omitted fields.
    pub(super) omitted: &'static [&'static str],
}

struct Visitor<'w> {
    inner: DefaultVisitor<'w>,
    omitted: &'static [&'static str],
}

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = Visitor { inner: DefaultVisitor::new(writer, true), omitted: self.omitted };
        fields.record(&mut visitor);
        visitor.inner.finish()
    }
}

impl Visitor<'_> {
    fn is_written(&self, field: &Field) -> bool {
        !self.omitted.contains(&field.name())
    }
}

impl Visit for Visitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.is_written(field) {
            self.inner.record_str(field, value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        if self.is_written(field) {
            self.inner.record_error(field, value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.is_written(field) {
            self.inner.record_debug(field, value);
        }
    }
}
