//! The limits that are drawn, with their labels.

mod svg;
mod timeline;

use std::error::Error;

use tidegate_limit::algorithm::leaky_bucket::Queue;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, Quota};

/// Six permits per minute: one permit every ten seconds if they become available one by one.
const RATE: u64 = 6;
const INTERVAL: u64 = 60_000;

/// A limit and its labels.
struct Subject {
    algorithm: Algorithm,
    /// The settings of the rule in addition to rate and interval.
    settings: &'static str,
    /// The length of the windows or segments, in milliseconds, if the limit has them.
    window: Option<u32>,
    /// The label of the step line.
    line_label: &'static str,
}

/// Returns the file name and the content of each picture.
pub fn pictures() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    subjects()?.iter().map(picture).collect()
}

fn picture(subject: &Subject) -> Result<(String, String), Box<dyn Error>> {
    let quota = Quota::new(RATE, INTERVAL, subject.algorithm)?;
    let timeline = timeline::run(quota)?;
    Ok((format!("{}.svg", subject.algorithm.name()), svg::draw(subject, &timeline)))
}

fn subjects() -> Result<[Subject; 5], Box<dyn Error>> {
    let minutes = Algorithm::FixedWindow(Calendar::new(Unit::Minute, "UTC")?);
    let queue = Algorithm::LeakyBucket(Queue { length: 4, max_wait: INTERVAL });
    let subject = |algorithm, settings, window| Subject { algorithm, settings, window, line_label: "left" };
    Ok([
        subject(Algorithm::TokenBucket, "", None),
        subject(Algorithm::Gcra { burst: 3 }, ", burst: 3", None),
        Subject { line_label: "slots", ..subject(queue, ", queue: 4", None) },
        subject(minutes, ", timezone: UTC", Some(60_000)),
        subject(Algorithm::SlidingWindow { segments: 3 }, ", segments: 3", Some(20_000)),
    ])
}
