//! The causes of rejections other than limits.

/// A reason for rejections of a route that no limit causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// `concurrency`: the route or the client has too many requests in flight.
    Concurrency,
    /// 401: the credentials are missing or not valid.
    NotIdentified,
    /// 403: the credentials are valid, but do not allow the request.
    NotAllowed,
    /// 403: an operator has banned the client.
    Banned,
}

impl Cause {
    /// All causes, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Concurrency, Self::NotIdentified, Self::NotAllowed, Self::Banned];

    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::NotIdentified => "not_identified",
            Self::NotAllowed => "not_allowed",
            Self::Banned => "banned",
        }
    }

    /// Returns the cause with a name in the API.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_found_by_their_names() {
        assert!(Cause::ALL.iter().all(|cause| Cause::parse(cause.as_str()) == Some(*cause)));
        assert!(Cause::ALL.iter().enumerate().all(|(position, cause)| *cause as usize == position));
        assert_eq!(Cause::parse("limit"), None);
    }
}
