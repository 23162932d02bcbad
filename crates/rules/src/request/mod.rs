//! A request as rules see it: its sanitized header fields, its path, its facts and its identity.

pub mod body;
pub mod facts;
pub mod identity;
pub mod path;
pub mod sanitize;
