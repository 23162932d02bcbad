//! The algorithms in Redis: their Lua files, their keys, and their arguments of the script.

use itoa::Integer;

use tidegate_limit::algorithm::gcra::warm_up::WarmUp;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::redisson::Sharing;
use tidegate_limit::{Algorithm, AlgorithmName, Mode};
use tidegate_rules::charge::{Limiter, OnLost};

/// The Lua file of the limiters that are shared with Redisson.
const REDISSON: &str = include_str!("../../../lua/redisson.lua");

/// The Lua file of `gcra` with a warm-up.
const GCRA_WARM_UP: &str = include_str!("../../../lua/gcra_warm_up.lua");

/// How long the lease of a gateway's reservations lasts, in milliseconds. Longer than the lease of a slot: a lease that ends
/// early charges permits.
pub(crate) const BUDGET_LEASE_MILLIS: u64 = 15_000;

/// Arguments of the script, each with a trailing space.
pub(super) struct ScriptArgs(pub(super) String);

/// Returns the Lua files of all algorithms.
pub(super) fn lua_files() -> impl Iterator<Item = &'static str> {
    let file = |name: &AlgorithmName| match name {
        AlgorithmName::TokenBucket => include_str!("../../../lua/token_bucket.lua"),
        AlgorithmName::Gcra => include_str!("../../../lua/gcra.lua"),
        AlgorithmName::LeakyBucket => include_str!("../../../lua/leaky_bucket.lua"),
        AlgorithmName::FixedWindow => include_str!("../../../lua/fixed_window.lua"),
        AlgorithmName::SlidingWindow => include_str!("../../../lua/sliding_window.lua"),
    };
    AlgorithmName::ALL.iter().map(file).chain([GCRA_WARM_UP, REDISSON])
}

/// Returns the part of a key that separates the buckets of different algorithms. Empty for `token_bucket`.
pub(super) const fn key_suffix(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::TokenBucket | Algorithm::Redisson(_) => "",
        Algorithm::Gcra { .. } => ":gcra",
        Algorithm::GcraWarmUp(_) => ":warm",
        Algorithm::LeakyBucket(_) => ":slots",
        Algorithm::SlidingWindow { .. } => ":segments",
        Algorithm::FixedWindow(_) => ":window",
    }
}

/// Returns Redisson's number of a mode.
pub(crate) fn redisson_mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Overall => "0",
        Mode::PerClient => "1",
    }
}

impl ScriptArgs {
    /// Adds the arguments of a limiter: the name of the algorithm, and its parameters. Calendar limits get the
    /// boundaries around `near`.
    pub(super) fn limiter(&mut self, limiter: &Limiter, near: Timestamp) -> &mut Self {
        let quota = &limiter.quota;
        let (rate, interval) = (quota.rate(), quota.interval());
        if let Some(on_lost) = limiter.budget {
            self.0.push_str("budget_");
            self.word(quota.algorithm().name()).number(BUDGET_LEASE_MILLIS);
            self.number(u8::from(on_lost == OnLost::Charge));
        } else {
            self.word(quota.algorithm().name());
        }
        match quota.algorithm() {
            Algorithm::TokenBucket => self.number(rate).number(interval),
            Algorithm::Gcra { burst } => self.number(rate).number(interval).number(burst),
            Algorithm::GcraWarmUp(WarmUp { burst, millis }) => {
                self.number(rate).number(interval).number(burst).number(millis)
            }
            Algorithm::LeakyBucket(queue) => {
                self.number(rate).number(interval).number(queue.length).number(queue.max_wait)
            }
            Algorithm::SlidingWindow { segments } => self.number(rate).number(interval).number(segments),
            Algorithm::FixedWindow(calendar) => {
                let boundaries = calendar.span(near).0;
                let args =
                    boundaries.iter().fold(self.number(rate), |args, boundary| args.number(boundary.as_millis()));
                args.number(calendar.unit().mean_millis())
            }
            Algorithm::Redisson(Sharing::Configure) => {
                self.word("configure").word(redisson_mode(limiter.mode)).number(rate).number(interval)
            }
            Algorithm::Redisson(Sharing::Adopt(mode)) => {
                self.word("adopt").word(mode.map_or("", redisson_mode)).word("").word("")
            }
            Algorithm::Redisson(Sharing::Library) => self.word("library").word("").word("").word(""),
        }
    }

    pub(super) fn number(&mut self, number: impl Integer) -> &mut Self {
        self.word(itoa::Buffer::new().format(number))
    }

    pub(super) fn word(&mut self, word: &str) -> &mut Self {
        self.0.push_str(word);
        self.0.push(' ');
        self
    }
}
