//! Where requests go.

pub mod settings;
