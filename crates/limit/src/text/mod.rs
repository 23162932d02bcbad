//! Words and numbers as text.

pub mod hex;
pub mod words;
