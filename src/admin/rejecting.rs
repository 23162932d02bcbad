//! The causes of rejections, as operators see them: the limits, and the other causes of each route.

use std::collections::HashMap;

use super::limit_list;
use tidegate_config::Config;
use tidegate_layer::rejected::{Cause, LimitId};
use tidegate_rules::limits::rule::{Limit, LimitLocation};

/// A limit, or another cause in a route, that rejects requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rejecting<'c> {
    pub(super) route: &'c str,
    pub(super) by: By<'c>,
}

/// The cause of the rejections of a route.
#[derive(Clone, Copy, Debug)]
pub(super) enum By<'c> {
    Limit(&'c Limit),
    Cause(Cause),
}

impl<'c> Rejecting<'c> {
    /// Returns all that can reject a request.
    pub(super) fn by_id(config: &'c Config) -> HashMap<LimitId, Self> {
        let limits = limit_list::all(config).chain(limit_list::of_callers(config));
        let limits = limits.map(|listed| Self { route: listed.route, by: By::Limit(listed.limit) });
        let routes = config.rules.routes.iter();
        let causes = routes
            .flat_map(|route| Cause::ALL.into_iter().map(|cause| Self { route: &route.name, by: By::Cause(cause) }));
        let bans =
            limit_list::domains(config).map(|domain| Self { route: domain.route(), by: By::Cause(Cause::Banned) });
        limits.chain(causes).chain(bans).map(|one| (one.id(), one)).collect()
    }

    fn id(self) -> LimitId {
        match self.by {
            By::Limit(limit) => LimitId::new(self.route, &limit.name),
            By::Cause(cause) => LimitId::of_cause(self.route, cause),
        }
    }

    /// Returns the word for the cause in the API.
    pub(super) fn cause(self) -> &'static str {
        match self.by {
            By::Limit(_) => "limit",
            By::Cause(cause) => cause.as_str(),
        }
    }

    pub(super) fn limit(self) -> Option<&'c Limit> {
        match self.by {
            By::Limit(limit) => Some(limit),
            By::Cause(_) => None,
        }
    }

    /// Returns the place of the limit in the rule file. Limits that callers set have none.
    pub(super) fn location(self) -> Option<LimitLocation> {
        self.limit().map(|limit| limit.location.clone()).filter(|location| !location.file.is_empty())
    }
}
