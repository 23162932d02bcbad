//! The faults that a chaos run injects.

use clap::ValueEnum;

use super::stores::StoreKind;

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

/// Faults of a single Redis, in the order of the first round.
const SINGLE_FAULTS: [Fault; 22] = [
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

/// Faults of a single Redis with TLS.
const TLS_FAULTS: [Fault; 13] = [
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

/// Faults of a master with Sentinel.
const SENTINEL_FAULTS: [Fault; 10] = [
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

/// Faults of a cluster.
const CLUSTER_FAULTS: [Fault; 12] = [
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
    /// Returns the faults of a kind of store, in the order of the first round.
    pub const fn all_of(kind: StoreKind) -> &'static [Self] {
        match kind {
            StoreKind::Single => &SINGLE_FAULTS,
            StoreKind::Tls => &TLS_FAULTS,
            StoreKind::Sentinel => &SENTINEL_FAULTS,
            StoreKind::Cluster => &CLUSTER_FAULTS,
        }
    }

    /// Returns `true` if a gateway is replaced during the fault.
    pub fn replaces_gateway(self) -> bool {
        matches!(self, Self::HandedOver | Self::GatewayRestarted)
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Stopped => "Redis hangs (SIGSTOP)",
            Self::Killed => "Redis is killed and restarts with its data",
            Self::KilledEmpty => "Redis is killed and restarts without data",
            Self::ScriptsFlushed => "SCRIPT FLUSH, FUNCTION FLUSH",
            Self::ConnectionsKilled => "CLIENT KILL, five times",
            Self::Paused => "CLIENT PAUSE ALL",
            Self::WritesPaused => "CLIENT PAUSE WRITE",
            Self::Busy => "an endless script blocks Redis (BUSY)",
            Self::OutOfMemory => "Redis has no memory (OOM)",
            Self::ReadOnly => "Redis is a replica without a master (READONLY)",
            Self::PasswordChanged => "Redis gets another password, the gateways later",
            Self::NotPermitted => "the gateways may not run scripts (NOPERM)",
            Self::CertificateExpired => "Redis presents an expired certificate",
            Self::ClockForward => "Redis's clock jumps an hour ahead and stays there",
            Self::ClockBack => "Redis's clock jumps an hour back and stays there",
            Self::OneCutOff => "one gateway cannot connect to Redis",
            Self::OneSilent => "the network of one gateway drops everything",
            Self::AllSilent => "the network of all gateways drops everything",
            Self::HalfOpen => "open connections go dead, new ones work",
            Self::SlowNetwork => "replies take 15 to 30 ms longer, at 200 kB/s",
            Self::AsSlowAsTheDeadline => "replies take 0.9 or 1.1 of the deadline longer",
            Self::Hesitates => "a server hangs and continues before it is replaced",
            Self::Replaced => "a master is killed, and its replica takes over",
            Self::StoppedUntilReplaced => "a master hangs until its replica has taken over",
            Self::FailoverAsked => "the operator requests a failover",
            Self::SentinelHangs => "a sentinel hangs",
            Self::SentinelsHang => "all sentinels hang",
            Self::SlotsMoved => "slots move, with their keys",
            Self::Restarted => "a primary is killed and restarts with its data",
            Self::NodeSilent => "the network of a primary drops everything",
            Self::NodeSlow => "replies of a primary take 15 to 30 ms longer",
            Self::HandedOver => "Redis hangs, and a gateway hands over three times",
            Self::GatewayRestarted => "Redis hangs, and a gateway is restarted",
        }
    }
}
