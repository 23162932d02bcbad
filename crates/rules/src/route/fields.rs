//! Changes of header fields: `request_headers` and `response_headers`.

use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::template::{Template, Values};

/// The changes of the header fields of a message, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldChanges {
    /// The fields to remove.
    pub remove: Vec<HeaderName>,
    /// The fields to replace.
    pub set: Vec<(HeaderName, FieldValue)>,
    /// The fields to add to fields of the same name.
    pub add: Vec<(HeaderName, FieldValue)>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// The same value for each request.
    Fixed(HeaderValue),
    /// A text with variables. The field is absent if a value is missing or cannot be part of a field.
    Template(Template),
}

/// The values of the templates for one request, in the order of the fields. `None` omits the field.
pub type RenderedValues = SmallVec<[Option<HeaderValue>; 1]>;

impl FieldChanges {
    /// Returns the templates, in the order of the fields.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.set.iter().chain(&self.add).filter_map(|(_, value)| match value {
            FieldValue::Template(template) => Some(template),
            FieldValue::Fixed(_) => None,
        })
    }

    /// Returns the names of all fields.
    #[doc(hidden)]
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.remove.iter().chain(self.set.iter().chain(&self.add).map(|(name, _)| name))
    }

    /// Computes the values of the templates.
    #[doc(hidden)]
    pub fn render(&self, values: &Values<'_>) -> RenderedValues {
        self.templates().map(|template| template.render_field(values)).collect()
    }

    /// Changes the fields.
    #[doc(hidden)]
    pub fn apply(&self, headers: &mut HeaderMap, rendered: RenderedValues) {
        let mut rendered = rendered.into_iter();
        let mut value = |value: &FieldValue| match value {
            FieldValue::Fixed(value) => Some(value.clone()),
            FieldValue::Template(_) => rendered.next().flatten(),
        };
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, template) in &self.set {
            match value(template) {
                Some(value) => _ = headers.insert(name, value),
                // The client must not choose the value instead.
                None => _ = headers.remove(name),
            }
        }
        for (name, template) in &self.add {
            if let Some(value) = value(template) {
                headers.append(name, value);
            }
        }
    }
}
