//! One request that may wait: for its turn, for its permits, for its slot.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::line::{Full, Line, Lines, Place};
use super::{Admitted, Denial, Receipt, Standing};
use crate::limit::{Charge, Wait};
use crate::rules::{Charges, LimitCharge, Positions};
use crate::store::Store;

/// A request, and where it stands.
pub(super) struct Waiting<'w> {
    store: &'w Store,
    lines: &'w Lines,
    charges: &'w Charges<'w>,
    /// When it came, if a limit lets it wait.
    began: Option<Instant>,
    place: Option<Place<'w>>,
}

/// A slot that is not reached yet; given back if the client leaves before.
struct Slot<'s> {
    store: &'s Store,
    receipt: Option<Receipt>,
}

impl<'w> Waiting<'w> {
    pub(super) fn new(store: &'w Store, lines: &'w Lines, charges: &'w Charges<'w>) -> Self {
        let may_wait = charges.iter().any(|one| one.limit.patience.is_some());
        Self { store, lines, charges, began: may_wait.then(Instant::now), place: None }
    }

    /// Queues up where others wait already: they came first.
    pub(super) async fn behind_others(&mut self) -> Result<(), Denial> {
        let waited_for = |one: &LimitCharge<'_>| waits(one) && self.lines.is_waited_for(one.charge);
        let waited_for = self.positions(waited_for);
        match self.join(&waited_for, |_| Line::Own) {
            Ok(()) => Ok(()),
            Err(Full) => Err(self.sent_away(&waited_for).await),
        }
    }

    /// Waits until nobody stands before this request.
    pub(super) async fn turn(&self) -> Result<(), Denial> {
        let Some(place) = &self.place else { return Ok(()) };
        let stands_in = self.positions(|one| place.stands_in_line_of(one.charge));
        let patience = stands_in.iter().filter_map(|position| self.charges.at(*position).limit.patience.as_ref());
        let shortest = patience.map(|patience| patience.max_wait).min().unwrap_or(Duration::ZERO);
        tokio::select! {
            biased;
            () = place.turn() => Ok(()),
            () = sleep(shortest.saturating_sub(self.waited())) => Err(self.sent_away(&stands_in).await),
            () = self.lines.closed() => Err(self.sent_away(&stands_in).await),
        }
    }

    /// Waits for the permits that were refused, or says that this request does not wait for them.
    pub(super) async fn permits(&mut self, standing: Standing, wait: Wait) -> Result<(), Denial> {
        let live = self.positions(|one| !one.limit.shadow);
        let refused: Positions = live.into_iter().filter(|one| standing.refused(&self.charges.at(*one))).collect();
        let all_may = refused.iter().all(|one| self.may_wait(&self.charges.at(*one), &standing));
        let Wait::Millis(millis) = wait else { return Err(Denial::Limited { standing, wait }) };
        // One line for the one bucket that all of these share, or a flood of clients would wait in as many lines.
        let line = |one: &LimitCharge<'_>| match standing.said(one.index) {
            Some(decision) if decision.overflow => Line::Overflow,
            _ => Line::Own,
        };
        if !all_may || self.join(&refused, line).is_err() {
            return Err(Denial::Limited { standing, wait });
        }
        tokio::select! {
            biased;
            () = sleep(Duration::from_millis(millis)) => Ok(()),
            () = self.lines.closed() => Err(Denial::Limited { standing, wait }),
        }
    }

    /// Holds a request that was granted a slot until the slot is there.
    pub(super) async fn slot(&self, admitted: Admitted) -> Result<Admitted, Denial> {
        let delay = admitted.standing.delay(self.charges);
        if delay == 0 {
            return Ok(admitted);
        }
        let receipt = Receipt::new(self.charges.clone(), admitted.standing.clone());
        let mut slot = Slot { store: self.store, receipt: Some(receipt) };
        tokio::select! {
            biased;
            () = sleep(Duration::from_millis(delay)) => {
                slot.receipt = None;
                Ok(admitted)
            }
            () = self.lines.closed() => {
                Err(Denial::Limited { standing: admitted.standing, wait: Wait::Millis(delay) })
            }
        }
    }

    /// How long it has waited.
    fn waited(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    fn may_wait(&self, one: &LimitCharge<'_>, standing: &Standing) -> bool {
        let wait = standing.said(one.index).map(|decision| decision.wait);
        let (Some(patience), Some(Wait::Millis(wait))) = (&one.limit.patience, wait) else {
            return false;
        };
        self.waited() + Duration::from_millis(wait) <= patience.max_wait
    }

    fn join(&mut self, positions: &[usize], line: impl Fn(&LimitCharge<'_>) -> Line) -> Result<(), Full> {
        for position in positions {
            let one = self.charges.at(*position);
            let queue = one.limit.patience.as_ref().map_or(0, |patience| patience.queue);
            self.place.get_or_insert_with(|| self.lines.ticket()).join(one.charge, line(&one), queue)?;
        }
        Ok(())
    }

    /// The answer to a request that is sent away without having been decided: how its limits stand, and that those in
    /// whose lines it cannot stay refuse it until a permit returns at the earliest.
    async fn sent_away(&self, lines: &[usize]) -> Denial {
        let ask = |charge: &Charge| Charge { permits: 0, ..charge.clone() };
        let asked: Vec<Charge> = self.charges.asked().iter().map(ask).collect();
        let mut outcome = match self.store.take(&asked).await {
            Ok(outcome) => outcome,
            Err(error) => return Denial::StoreFailed(error),
        };
        for line in lines {
            let decision = &mut outcome.decisions[*line];
            (decision.granted, decision.wait) = (false, Wait::Millis(decision.reset));
        }
        let standing = Standing::new(self.charges, outcome);
        Denial::Limited { wait: standing.wait, standing }
    }

    /// The positions of such charges among all.
    fn positions(&self, which: impl Fn(&LimitCharge<'_>) -> bool) -> Positions {
        self.charges.iter().enumerate().filter(|(_, one)| which(one)).map(|(position, _)| position).collect()
    }
}

/// May requests wait for this limit?
fn waits(one: &LimitCharge<'_>) -> bool {
    !one.limit.shadow && one.limit.patience.is_some()
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let (Some(receipt), Ok(runtime)) = (self.receipt.take(), Handle::try_current()) else { return };
        let store = self.store.clone();
        runtime.spawn(async move { receipt.give_back(&store).await });
    }
}
