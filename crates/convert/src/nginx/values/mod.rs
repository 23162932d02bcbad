//! Values of directives: times, sizes, variables, and the conditions under which a variable has a value.

pub(crate) mod branch;
mod geo;
mod map;
mod networks;
pub(crate) mod pattern;
pub(crate) mod source;
pub(crate) mod template;
pub(crate) mod units;
pub(crate) mod variables;

#[cfg(test)]
mod tests;

/// Why the values of a variable are not known.
pub(crate) type Unknown = String;
