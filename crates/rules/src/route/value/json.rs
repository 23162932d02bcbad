//! Values of JSON bodies.

use super::Readings;
use crate::request::body::ReadBody;
use tidegate_usage::{MemberValue, Pointer};

/// Reads a value. Some parsers convert arrays with one element; long texts were not kept.
pub(super) fn read(body: Option<&ReadBody>, pointer: &Pointer, readings: &mut Readings<'_>) {
    match body.and_then(|body| body.value(pointer)) {
        None => return,
        Some(MemberValue::Null) => readings.add(Some(b"")),
        Some(MemberValue::Long | MemberValue::Container) => readings.add_unreadable(),
        Some(value) => readings.add(value.text().as_deref().map(str::as_bytes)),
    }
    readings.count = 1;
}
