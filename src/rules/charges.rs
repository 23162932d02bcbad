//! The charges of one request.

use smallvec::SmallVec;

use crate::limit::Charge;
use crate::rule::Limit;

/// Positions of limits in their route, or of charges in their request. Up to four need no allocation.
pub(crate) type Positions = SmallVec<[usize; 4]>;

/// The charges of one request: one for each limit that counts it.
#[derive(Clone, Debug)]
pub struct Charges<'r> {
    limits: &'r [Limit],
    /// For each charge, the position of its limit.
    positions: Positions,
    charges: Vec<Charge>,
}

/// A limit that counts the request, with its charge.
#[derive(Clone, Copy, Debug)]
pub struct LimitCharge<'c> {
    /// The position of the limit in its route.
    pub index: usize,
    /// The limit.
    pub limit: &'c Limit,
    /// The charge for the store.
    pub charge: &'c Charge,
}

impl<'r> Charges<'r> {
    /// Creates an empty list for a route with these limits.
    pub(super) fn new(limits: &'r [Limit]) -> Self {
        Self { limits, positions: Positions::new(), charges: Vec::with_capacity(limits.len()) }
    }

    /// Adds the charge of the limit at this position.
    #[inline]
    pub(super) fn push(&mut self, index: usize, charge: Charge) {
        self.positions.push(index);
        self.charges.push(charge);
    }

    /// Returns the charges for the store.
    pub fn as_slice(&self) -> &[Charge] {
        &self.charges
    }

    /// Returns all limits of the route, including those that do not count the request.
    pub(crate) fn limits(&self) -> &'r [Limit] {
        self.limits
    }

    /// Returns the number of limits that count the request.
    pub fn len(&self) -> usize {
        self.charges.len()
    }

    /// Returns `true` if no limit counts the request.
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// Returns the charges in order, each with its limit.
    pub fn iter(&self) -> impl Iterator<Item = LimitCharge<'_>> {
        let limit = |(index, charge)| LimitCharge { index, limit: &self.limits[index], charge };
        self.positions.iter().copied().zip(&self.charges).map(limit)
    }

    /// Returns the charge at this position of the request.
    pub(crate) fn at(&self, position: usize) -> LimitCharge<'_> {
        let index = self.positions[position];
        LimitCharge { index, limit: &self.limits[index], charge: &self.charges[position] }
    }

    /// Returns the charges that match a predicate.
    pub(crate) fn only(&self, which: impl Fn(&LimitCharge<'_>) -> bool) -> Self {
        let mut some = Self::new(self.limits);
        for one in self.iter().filter(|one| which(one)) {
            some.push(one.index, one.charge.clone());
        }
        some
    }

    /// Returns the position of the limit of each charge.
    pub(crate) fn positions(&self) -> &Positions {
        &self.positions
    }

    /// Splits the list into the positions of the limits and the charges.
    pub(crate) fn into_parts(self) -> (Positions, Vec<Charge>) {
        (self.positions, self.charges)
    }
}
