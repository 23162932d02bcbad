//! Charges: the permits that the limits of a request take, the buckets that they take them from, and the decisions of the
//! store about them.

pub mod crc16;
mod decision;
mod limiter;
mod report;
mod reservation;
mod spread;
mod turn;

use std::sync::Arc;

use ipnet::IpNet;

pub use self::decision::{Decision, Granted, Outcome};
pub use self::limiter::Limiter;
pub use self::reservation::{OnLost, RESERVED_WAIT, ReservationId};
pub use self::spread::Spread;
pub use self::turn::{QueueStart, Turn};

/// The client of a PER_CLIENT bucket. Apart from addresses, no client input is written to a store unhashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientId {
    /// An address, or a network that represents it (an IPv6 prefix).
    Address(IpNet),
    /// An unambiguous encoding of client input, of any length. It is hashed before it leaves the process.
    Value(Box<[u8]>),
    /// The keyed hash of a [`Value`](Self::Value), as it is in keys: another name of the same client, for operators who
    /// know only the key.
    Hash(u128),
    /// The name that an application chooses for itself, as Redisson clients do; written unhashed.
    Instance(Arc<str>),
}

/// The identity of a bucket: the name of its limiter, and its client. It does not change with the rule.
pub type BucketId = (String, Option<ClientId>);

/// A request for permits of one bucket.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The limit.
    pub limiter: Arc<Limiter>,
    /// The client; `Some` exactly if the mode is [`Mode::PerClient`](tidegate_limit::Mode::PerClient).
    pub client: Option<ClientId>,
    /// The requested permits; 0 only reads the bucket.
    pub permits: u32,
    /// Whether the limit is a shadow, which rejects no request. Its charge is made if its bucket grants it and all live
    /// charges are made.
    pub shadow: bool,
    /// The effect on the permits.
    pub kind: ChargeKind,
    /// The turn among waiting requests.
    pub turn: Turn,
}

/// The effect of a charge on the permits of its bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChargeKind {
    /// Takes them, if all limits of the request grant it.
    #[default]
    Take,
    /// Takes none: the bucket only has to have them. The decision reports all that remain.
    Check,
    /// Takes them in any case, for something that has happened. Permits that the bucket lacks are debt, which later
    /// requests wait for.
    Unconditional,
    /// Takes none and needs none: the bucket only must not have debt. [`Charge::permits`] do not matter.
    NoDebt,
    /// Reserves them for a request whose cost is not known yet, if all limits of the request grant it. Only for limits with a
    /// [`budget`](Limiter::budget). A second reservation with the same number adds to the first.
    Reserve(ReservationId),
    /// Ends a reservation, and takes the permits in any case, as [`Unconditional`](Self::Unconditional). Without effect if the
    /// reservation has ended before. Its decision has the permits that were not spent before: reservations do not count, and
    /// the number is 0 if the reservation had ended.
    Settle(ReservationId),
}

impl ChargeKind {
    /// Returns `true` if the charge takes no permits.
    pub fn is_check(self) -> bool {
        matches!(self, Self::Check | Self::NoDebt)
    }

    /// Returns the reservation that the charge makes or ends.
    pub fn reservation(self) -> Option<ReservationId> {
        match self {
            Self::Reserve(id) | Self::Settle(id) => Some(id),
            Self::Take | Self::Check | Self::Unconditional | Self::NoDebt => None,
        }
    }
}

impl Charge {
    /// Creates the charge of a live limit, which takes the permits if all limits grant the request.
    pub fn new(limiter: Arc<Limiter>, client: Option<ClientId>, permits: u32) -> Self {
        Self { limiter, client, permits, shadow: false, kind: ChargeKind::Take, turn: Turn::Any }
    }

    /// Returns the permits that the charge takes if it is granted.
    #[inline]
    pub fn taken(&self) -> u32 {
        if self.kind.is_check() { 0 } else { self.permits }
    }

    /// Returns the charge that ends this reservation with a cost; `None` if this charge is no reservation.
    pub fn settled(&self, permits: u32) -> Option<Self> {
        let ChargeKind::Reserve(id) = self.kind else { return None };
        Some(Self { kind: ChargeKind::Settle(id), turn: Turn::Any, permits, ..self.clone() })
    }

    /// Returns the identity of the bucket among all buckets of a store: the limiter's name and the client.
    pub fn bucket_id(&self) -> BucketId {
        (self.limiter.name.clone(), self.client.clone())
    }
}
