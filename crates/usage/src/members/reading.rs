//! Reads the values of one call.

use super::value::{Ambiguity, MemberValue};
use super::{MemberPointers, MembersError};
use crate::json::{Field, Scanner, Sink, Value};

/// The values of one call, by the numbers of their fields.
pub(super) type Values = Vec<Option<MemberValue>>;

struct Reading<'p> {
    pointers: &'p MemberPointers,
    text: &'p [u8],
    values: Values,
    error: Option<MembersError>,
}

/// Reads the values of a call, which is valid JSON.
pub(super) fn read(pointers: &MemberPointers, text: &[u8]) -> Result<Values, MembersError> {
    let mut reading = Reading { pointers, text, values: vec![None; pointers.fields.len()], error: None };
    let mut scanner = Scanner::new(pointers.scanned.clone());
    let whole = scanner.push(text, &mut reading).and_then(|()| scanner.end(&mut reading));
    whole.map_err(|_| MembersError::NotJson)?;
    reading.error.map_or(Ok(reading.values), Err)
}

impl Reading<'_> {
    fn add(&mut self, field: usize, value: Value<'_>, at: u64) -> Result<(), MembersError> {
        let name = || self.pointers.fields[field].clone();
        if self.values[field].is_some() {
            return Err(MembersError::Repeated(name()));
        }
        let rest = usize::try_from(at).ok().and_then(|at| self.text.get(at..)).unwrap_or_default();
        let value = MemberValue::read(value, rest).map_err(|ambiguity| match ambiguity {
            Ambiguity::Number => MembersError::Number(name()),
            Ambiguity::Text => MembersError::Text(name()),
        })?;
        self.values[field] = Some(value);
        Ok(())
    }
}

impl Sink for Reading<'_> {
    const SEES_LOOKALIKES: bool = true;

    fn value(&mut self, field: Field, value: Value<'_>, at: u64) {
        if self.error.is_none() {
            self.error = self.add(field.0.into(), value, at).err();
        }
    }

    fn text(&mut self, _: Field, _: usize) {}

    fn lookalike(&mut self) {
        self.error.get_or_insert(MembersError::Lookalike);
    }
}
