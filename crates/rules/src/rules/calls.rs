//! The charges of a batch: a body that is an array of calls, as in JSON-RPC. All calls are charged, or none.

use super::{Charges, LimitCheck, LimitRejection, MissingInput, Rules};
use crate::limits::cost::CostError;
use crate::limits::rule::Limit;
use crate::request::facts::Facts;
use crate::route::Route;

impl Rules {
    /// Returns the charges of all calls of a body. Limits that do not read the body count the request once. A limit has one
    /// charge for each client of the calls.
    ///
    /// # Errors
    /// A limit lacks its input for one of the calls, or the calls have too many clients.
    pub(super) fn charges_of_calls<'r>(
        &self,
        route: &'r Route,
        facts: &Facts<'_>,
        may_reject: impl Fn(&Limit) -> bool,
    ) -> Result<Charges<'r>, LimitRejection<'r>> {
        let mut charges = Charges::new(&route.limits);
        let mut facts = facts.clone();
        let calls = facts.body.as_ref().map_or(1, |body| body.calls());
        for (index, limit) in route.limits.iter().enumerate() {
            for call in 0..if limit.reads_body() { calls } else { 1 } {
                facts.select_call(call);
                match self.check_limit(limit, &facts) {
                    LimitCheck::Charge(charge) => {
                        limit.record_rate(&charge, &facts);
                        charges.add(index, charge);
                    }
                    LimitCheck::Skip(_) | LimitCheck::Unmet => {}
                    LimitCheck::Deny(cause) if may_reject(limit) => {
                        return Err(LimitRejection::new(limit, cause, &facts));
                    }
                    LimitCheck::Deny(_) => {}
                }
            }
            if charges.len() > Route::MAX_LIMITS {
                let cause = MissingInput::Cost(CostError::TooManyBuckets(Route::MAX_LIMITS));
                return Err(LimitRejection::new(limit, cause, &facts));
            }
        }
        Ok(charges)
    }
}
