//! What the limits of a route ask of one request, in the form in which a store is charges.

use smallvec::SmallVec;

use crate::limit::Charge;
use crate::rule::Limit;

/// Positions of limits in their route, or of charges among those of a request. A few need no memory of their own.
pub(crate) type Positions = SmallVec<[usize; 4]>;

/// The charges of one request: one for each limit that counts it.
#[derive(Clone, Debug)]
pub struct Charges<'r> {
    limits: &'r [Limit],
    /// For each charge, the position of its limit.
    positions: Positions,
    charges: Vec<Charge>,
}

/// A limit that a request is subject to, and what it asks of it.
#[derive(Clone, Copy, Debug)]
pub struct LimitCharge<'c> {
    /// Its position among the route's limits.
    pub index: usize,
    /// The rule.
    pub limit: &'c Limit,
    /// What the store is charges for.
    pub charge: &'c Charge,
}

impl<'r> Charges<'r> {
    /// None yet, of a route with these limits.
    pub(super) fn new(limits: &'r [Limit]) -> Self {
        Self { limits, positions: Positions::new(), charges: Vec::with_capacity(limits.len()) }
    }

    /// Adds what the limit at this position asks.
    #[inline]
    pub(super) fn push(&mut self, index: usize, charge: Charge) {
        self.positions.push(index);
        self.charges.push(charge);
    }

    /// What a store is charges for.
    pub fn as_slice(&self) -> &[Charge] {
        &self.charges
    }

    /// All limits of the route, also those that do not count the request.
    pub(crate) fn limits(&self) -> &'r [Limit] {
        self.limits
    }

    /// How many limits count the request.
    pub fn len(&self) -> usize {
        self.charges.len()
    }

    /// Does no limit count the request?
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// Each charge with its limit, in their order.
    pub fn iter(&self) -> impl Iterator<Item = LimitCharge<'_>> {
        let limit = |(index, charge)| LimitCharge { index, limit: &self.limits[index], charge };
        self.positions.iter().copied().zip(&self.charges).map(limit)
    }

    /// The charge at this position among the charges.
    pub(crate) fn at(&self, position: usize) -> LimitCharge<'_> {
        let index = self.positions[position];
        LimitCharge { index, limit: &self.limits[index], charge: &self.charges[position] }
    }

    /// Those of the charges that `which` names.
    pub(crate) fn only(&self, which: impl Fn(&LimitCharge<'_>) -> bool) -> Self {
        let mut some = Self::new(self.limits);
        for one in self.iter().filter(|one| which(one)) {
            some.push(one.index, one.charge.clone());
        }
        some
    }

    /// For each charge, the position of its limit.
    pub(crate) fn positions(&self) -> &Positions {
        &self.positions
    }

    /// The charges alone, each with the position of its limit.
    pub(crate) fn into_parts(self) -> (Positions, Vec<Charge>) {
        (self.positions, self.charges)
    }
}
