//! Measures the cost of a decision without a store: `cargo bench -p tidegate-steps --bench decide -- --quick`.
//!
//! The time of each bucket advances by interval/rate with each request. As many permits become available as are taken,
//! so the state keeps its size. `rejected` is a decision of a bucket without permits.

use std::error::Error;
use std::hint::black_box;

use criterion::Criterion;
use tidegate::Timestamp;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, BucketState, Quota, examples};

const INTERVAL: u64 = 60_000;
const START: u64 = 1_700_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    for (name, quota) in quotas()? {
        granted(&mut criterion, &name, &quota);
        rejected(&mut criterion, &name, &quota);
    }
    criterion.final_summary();
    Ok(())
}

fn quotas() -> Result<Vec<(String, Quota)>, Box<dyn Error>> {
    let mut quotas = Vec::new();
    for rate in [10, 512, 100_000] {
        quotas.push((format!("token_bucket {rate}"), Quota::new(rate, INTERVAL, Algorithm::TokenBucket)?));
    }
    for algorithm in examples(100) {
        quotas.push((algorithm.name().to_owned(), Quota::new(1_000, INTERVAL, algorithm)?));
    }
    for (name, algorithm) in [
        ("sliding_window of 60", Algorithm::SlidingWindow { segments: 60 }),
        ("fixed_window, day in Rome", Algorithm::FixedWindow(Calendar::new(Unit::Day, "Europe/Rome")?)),
    ] {
        quotas.push((name.to_owned(), Quota::new(1_000, INTERVAL, algorithm)?));
    }
    Ok(quotas)
}

/// Checks and charges, as a store does.
fn granted(criterion: &mut Criterion, name: &str, quota: &Quota) {
    let (mut state, mut micros) = (BucketState::EMPTY, START * 1_000);
    let step = (quota.interval() * 1_000).div_ceil(u64::from(quota.rate()));
    let mut request = || {
        micros += step;
        let now = Timestamp::from_millis(micros / 1_000);
        let decision = state.check(quota, 1, now);
        if decision.granted { state.charge(quota, 1, now) } else { decision }
    };
    for _ in 0..2 * quota.rate() {
        request();
    }
    criterion.bench_function(&format!("{name}/granted"), |bench| bench.iter(&mut request));
}

/// Checks, and updates the state after the refusal, as a store does.
fn rejected(criterion: &mut Criterion, name: &str, quota: &Quota) {
    let (mut state, now) = (BucketState::EMPTY, Timestamp::from_millis(START));
    while state.check(quota, 1, now).granted {
        state.charge(quota, 1, now);
    }
    criterion.bench_function(&format!("{name}/rejected"), |bench| {
        bench.iter(|| {
            let decision = state.check(black_box(quota), 1, now);
            state.on_refusal(quota, now);
            decision
        });
    });
}
