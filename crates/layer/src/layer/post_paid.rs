//! Decides the charges of a call, some of which are reports to post-paid limits: costs of requests that have happened.
//!
//! All other charges are made or none. Reports are made in any case, and refuse nothing that other limits grant.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::admission::{Admitted, Denial, admit_until, store_failure};
use tidegate_rules::charge::{ChargeKind, Decision};
use tidegate_rules::rules::{Charges, LimitCharge};
use tidegate_store::{Store, StoreError};

/// The decision about a call, apart from the decisions of its limits.
pub(super) struct AdmittedCall {
    /// Whether the charges other than reports are made.
    pub(super) admitted: Result<Admitted, Denial>,
    /// Why reports have no decisions.
    pub(super) report_error: Option<StoreError>,
    /// The positions of charges that are reports.
    pub(super) reported: Vec<usize>,
}

/// Reports that are being charged.
struct Reports {
    /// The positions of their charges in the call.
    positions: Vec<usize>,
    task: JoinHandle<Result<Vec<Decision>, StoreError>>,
}

/// Makes the charges of a call, and adds their decisions. A limit that is checked becomes post-paid. Only a call that states its
/// hits can be a report.
///
/// This process may not know yet that a limit is post-paid, because another gateway has checked it. So it asks the store about
/// limits that were not charged, and then decides the other charges again.
pub(super) async fn admit_call(
    store: &Store,
    charges: &mut Charges<'_>,
    states_hits: bool,
    deadline: Instant,
) -> AdmittedCall {
    let checked = charges.iter().filter(|entry| entry.charge.kind == ChargeKind::NoDebt);
    let checked: Vec<_> = checked.map(|entry| Arc::clone(&entry.charge.limiter)).collect();
    let may_be_report = |entry: &LimitCharge<'_>| states_hits && entry.charge.permits > 0;
    let mut reported = positions(charges, |_, entry| may_be_report(entry) && store.is_post_paid(&entry.charge.limiter));
    let mut reports = Vec::from_iter(Reports::send(store, charges, reported.clone()));
    let marking = join_all(checked.iter().map(|limiter| store.make_post_paid(limiter)));
    let marking = timeout_at(deadline, marking);
    let (mut admitted, _) = join(admit_others(store, charges, &reported, deadline), marking).await;
    while states_hits
        && let Ok(Some(found)) = timeout_at(deadline, find_reports(store, charges, &admitted, &reported)).await
    {
        reported.extend(&found);
        reports.extend(Reports::send(store, charges, found));
        if admitted.is_ok() {
            break; // the others are charged, or only checked
        }
        admitted = admit_others(store, charges, &reported, deadline).await;
    }
    let mut report_error = None;
    for report in reports {
        report_error = report.add_decisions(charges, deadline).await.err().or(report_error);
    }
    AdmittedCall { admitted, report_error, reported }
}

/// Decides the charges other than reports.
async fn admit_others(
    store: &Store,
    charges: &mut Charges<'_>,
    reported: &[usize],
    deadline: Instant,
) -> Result<Admitted, Denial> {
    if reported.is_empty() {
        return admit_until(store, charges, deadline).await;
    }
    let mut others = charges.without(reported);
    let admitted = admit_until(store, &mut others, deadline).await;
    charges.decide_only(&others);
    admitted
}

/// Returns the positions of charges that were not made, of limits that are post-paid for other gateways. Returns `None` if
/// no such charge exists.
async fn find_reports(
    store: &Store,
    charges: &Charges<'_>,
    admitted: &Result<Admitted, Denial>,
    reported: &[usize],
) -> Option<Vec<usize>> {
    if store_failure(admitted).is_some() {
        return None; // it would not reply
    }
    let is_made =
        |entry: &LimitCharge<'_>| admitted.is_ok() && !entry.is_refused() && entry.charge.kind != ChargeKind::Check;
    let others = positions(charges, |position, entry| {
        entry.charge.permits > 0 && !is_made(entry) && !reported.contains(&position)
    });
    let is_post_paid = |position: &usize| store.has_become_post_paid(&charges.at(*position).charge.limiter);
    let are_post_paid = join_all(others.iter().map(is_post_paid)).await;
    let found = others.iter().zip(are_post_paid).filter(|(_, is_post_paid)| *is_post_paid);
    let found: Vec<_> = found.map(|(position, _)| *position).collect();
    Some(found).filter(|found| !found.is_empty())
}

/// Returns the positions of the charges that match.
fn positions(charges: &Charges<'_>, matches: impl Fn(usize, &LimitCharge<'_>) -> bool) -> Vec<usize> {
    (0..charges.len()).filter(|position| matches(*position, &charges.at(*position))).collect()
}

impl Reports {
    /// Starts to charge the reports at these positions. A caller that leaves does not interrupt this.
    fn send(store: &Store, charges: &Charges<'_>, positions: Vec<usize>) -> Option<Self> {
        if positions.is_empty() {
            return None;
        }
        let due: Vec<_> = positions.iter().map(|position| charges.at(*position).charge.clone()).collect();
        let store = store.clone();
        Some(Self { positions, task: tokio::spawn(async move { store.report(&due).await }) })
    }

    /// Waits for the decisions, and adds them to the call. After the deadline, the reports are still charged.
    ///
    /// # Errors
    /// The store did not decide.
    async fn add_decisions(self, charges: &mut Charges<'_>, deadline: Instant) -> Result<(), StoreError> {
        let decided = timeout_at(deadline, self.task).await.map_err(|_| StoreError::Timeout)?;
        let decisions = decided.unwrap_or(Err(StoreError::Broken))?;
        for (position, decision) in self.positions.into_iter().zip(decisions) {
            charges.add_report(position, decision);
        }
        Ok(())
    }
}
