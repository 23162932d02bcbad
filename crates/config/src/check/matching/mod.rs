//! The conditions of routes and limits.

pub(crate) mod conditions;
pub(crate) mod identity;
pub(crate) mod matcher;
pub(crate) mod route_context;
pub(crate) mod spelling;
