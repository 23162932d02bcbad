//! What goes wrong.

use clap::ValueEnum;

use super::world::Kind;

/// A way in which Redis or the network fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    Stopped,
    Killed,
    KilledEmpty,
    ScriptsFlushed,
    ConnectionsKilled,
    Paused,
    WritesPaused,
    Busy,
    OutOfMemory,
    ReadOnly,
    PasswordChanged,
    NotPermitted,
    CertificateExpired,
    ClockForward,
    ClockBack,
    OneCutOff,
    OneSilent,
    AllSilent,
    HalfOpen,
    SlowNetwork,
    AsSlowAsTheDeadline,
    Hesitates,
    Replaced,
    StoppedUntilReplaced,
    FailoverAsked,
    SentinelHangs,
    SentinelsHang,
    SlotsMoved,
    Restarted,
    NodeSilent,
    NodeSlow,
    HandedOver,
    GatewayRestarted,
}

/// Those of one Redis, in the order in which they come first.
const OF_SINGLE: [Fault; 22] = [
    Fault::Stopped,
    Fault::HandedOver,
    Fault::ScriptsFlushed,
    Fault::Killed,
    Fault::ConnectionsKilled,
    Fault::OutOfMemory,
    Fault::OneCutOff,
    Fault::Paused,
    Fault::HalfOpen,
    Fault::KilledEmpty,
    Fault::GatewayRestarted,
    Fault::Busy,
    Fault::PasswordChanged,
    Fault::ClockForward,
    Fault::NotPermitted,
    Fault::ClockBack,
    Fault::OneSilent,
    Fault::SlowNetwork,
    Fault::WritesPaused,
    Fault::AsSlowAsTheDeadline,
    Fault::ReadOnly,
    Fault::AllSilent,
];

/// Those of one Redis that is reached by TLS.
const OF_TLS: [Fault; 13] = [
    Fault::CertificateExpired,
    Fault::Killed,
    Fault::ConnectionsKilled,
    Fault::AllSilent,
    Fault::HalfOpen,
    Fault::HandedOver,
    Fault::Stopped,
    Fault::OneCutOff,
    Fault::PasswordChanged,
    Fault::KilledEmpty,
    Fault::SlowNetwork,
    Fault::NotPermitted,
    Fault::Paused,
];

/// Those of a master that sentinels watch.
const OF_SENTINEL: [Fault; 10] = [
    Fault::Replaced,
    Fault::FailoverAsked,
    Fault::SentinelHangs,
    Fault::StoppedUntilReplaced,
    Fault::Hesitates,
    Fault::SentinelsHang,
    Fault::ScriptsFlushed,
    Fault::ConnectionsKilled,
    Fault::OutOfMemory,
    Fault::Paused,
];

/// Those of a cluster.
const OF_CLUSTER: [Fault; 12] = [
    Fault::Replaced,
    Fault::SlotsMoved,
    Fault::FailoverAsked,
    Fault::NodeSilent,
    Fault::StoppedUntilReplaced,
    Fault::Restarted,
    Fault::Hesitates,
    Fault::HalfOpen,
    Fault::ConnectionsKilled,
    Fault::OutOfMemory,
    Fault::NodeSlow,
    Fault::ScriptsFlushed,
];

impl Fault {
    /// Those that a store has, in the order in which they come first.
    pub const fn of(kind: Kind) -> &'static [Self] {
        match kind {
            Kind::Single => &OF_SINGLE,
            Kind::Tls => &OF_TLS,
            Kind::Sentinel => &OF_SENTINEL,
            Kind::Cluster => &OF_CLUSTER,
        }
    }

    /// Whether a gateway is replaced in the meantime.
    pub fn replaces_gateway(self) -> bool {
        matches!(self, Self::HandedOver | Self::GatewayRestarted)
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Stopped => "Redis hangs (SIGSTOP)",
            Self::Killed => "Redis is killed and comes back with its data",
            Self::KilledEmpty => "Redis is killed and comes back empty",
            Self::ScriptsFlushed => "SCRIPT FLUSH, FUNCTION FLUSH",
            Self::ConnectionsKilled => "CLIENT KILL, five times",
            Self::Paused => "CLIENT PAUSE ALL",
            Self::WritesPaused => "CLIENT PAUSE WRITE",
            Self::Busy => "a script that does not end (BUSY)",
            Self::OutOfMemory => "no memory (OOM)",
            Self::ReadOnly => "a replica without a master (READONLY)",
            Self::PasswordChanged => "another password, told to the gateways at the end",
            Self::NotPermitted => "the gateways may run no script (NOPERM)",
            Self::CertificateExpired => "Redis shows a certificate that has expired",
            Self::ClockForward => "Redis's clock leaps an hour ahead, and stays there",
            Self::ClockBack => "Redis's clock goes back an hour, and stays there",
            Self::OneCutOff => "one gateway is cut off",
            Self::OneSilent => "the network of one gateway is silent",
            Self::AllSilent => "the network of all gateways is silent",
            Self::HalfOpen => "open connections go dead, new ones work",
            Self::SlowNetwork => "answers take 15 to 30 ms longer, at 200 kB a second",
            Self::AsSlowAsTheDeadline => "answers take 0.9 or 1.1 of the deadline longer",
            Self::Hesitates => "a server hangs, and goes on before it is replaced",
            Self::Replaced => "a master is killed, and its replica takes over",
            Self::StoppedUntilReplaced => "a master hangs until its replica has taken over",
            Self::FailoverAsked => "a failover is asked for",
            Self::SentinelHangs => "a sentinel hangs",
            Self::SentinelsHang => "all sentinels hang",
            Self::SlotsMoved => "slots move, with their keys",
            Self::Restarted => "a primary is killed and comes back with its data",
            Self::NodeSilent => "the network before a primary is silent",
            Self::NodeSlow => "answers of a primary take 15 to 30 ms longer",
            Self::HandedOver => "Redis hangs, and a gateway hands over three times",
            Self::GatewayRestarted => "Redis hangs, and a gateway is restarted",
        }
    }
}
