//! The sorted curve of clients, with a line for the rate.

use serde::Serialize;

use super::chart::{Chart, LogScale, SIZE, area, steps};
use super::over_time::key;
use super::rates::{Candidate, candidates, is_overall, sorted};
use super::text::{Escaped, grouped, percent, to_float};
use crate::report::LimitReport;

/// The rates of a limit, for the script of the page.
#[derive(Debug, Serialize)]
pub(super) struct Rates {
    interval: String,
    subject: &'static str,
    /// The number of clients or intervals.
    count: u64,
    permits: u64,
    /// The rate, the clients and permits above it, 1 if the counts are approximate, and the positions of the lines.
    points: Vec<(u32, u64, u64, u8, f64, f64)>,
}

/// Returns the figure and the data of its script. `id` is unique in the page.
pub(super) fn figure(id: &str, limit: &LimitReport) -> (String, Rates) {
    let (ranks, count) = sorted(limit);
    let candidates = candidates(limit);
    let top = candidates.last().map_or(1, |candidate| candidate.rate);
    let across = LogScale::new(1.0, to_float(count.max(1) + 1));
    let up = LogScale::new(0.7, f64::from(top.max(2)));
    let y = |permits: u32| SIZE - up.at(f64::from(permits));
    let x = |above: u64| across.at(to_float(above + 1));
    let curve = steps(ranks.iter().map(|point| (x(point.rank - 1), y(point.demand))), SIZE);

    let start = candidates.iter().position(|candidate| candidate.rate == limit.rate).unwrap_or(0);
    let chosen = candidates.get(start).copied();
    let chosen = chosen.unwrap_or(Candidate { rate: 1, above: 0, permits: 0, is_approximate: false });
    let subject = if is_overall(limit) { "intervals" } else { "clients" };
    let permits = limit.curve.first().map_or(0, |point| point.requests);

    let (at_y, at_x) = (y(chosen.rate), x(chosen.above));
    let drawing = format!(
        "<clipPath id=\"{id}-clip\"><rect id=\"{id}-over\" width=\"{SIZE}\" height=\"{at_y:.1}\"/></clipPath>\
         <path class=\"track\" d=\"{0}\"/><path class=\"over\" clip-path=\"url(#{id}-clip)\" d=\"{0}\"/>\
         <path class=\"line accent\" d=\"{curve}\"/>\
         <line id=\"{id}-across\" class=\"line strong dashed\" x1=\"0\" x2=\"{SIZE}\" y1=\"{at_y:.1}\" y2=\"{at_y:.1}\"/>\
         <line id=\"{id}-down\" class=\"line strong dotted\" x1=\"{at_x:.1}\" x2=\"{at_x:.1}\" y1=\"{at_y:.1}\" y2=\"{SIZE}\"/>",
        area(&curve),
    );
    let mut vertical = up.ticks(top.into());
    vertical.iter_mut().for_each(|(y, _)| *y = SIZE - *y);
    let horizontal = across.ticks(count.max(1));
    let chart = Chart { vertical: &vertical, horizontal: &horizontal, drawing: &drawing };

    let about = if chosen.is_approximate { "about " } else { "" };
    let interval = Escaped(&limit.interval).to_string();
    let share = |part: u64, of: u64| format!("{about}{} ({})", grouped(part), percent(part, of));
    let title = if is_overall(limit) {
        "Intervals by demand, to estimate other rates"
    } else {
        "Clients by demand, to estimate other rates"
    };
    let html = format!(
        "<figure>\n<figcaption>\n<h3>{title}</h3>\n<ul class=\"legend\">\n\
         <li>{}<span>permits in {interval}</span></li>\n<li>{}<span>rate</span></li>\n</ul>\n</figcaption>\n\
         <form class=\"try\" autocomplete=\"off\">\n\
         <label for=\"{id}-rate\">Try a rate</label>\n\
         <input id=\"{id}-rate\" type=\"range\" min=\"0\" max=\"{}\" value=\"{start}\" disabled>\n</form>\n\
         <dl class=\"facts\">\n\
         <div><dt>Rate</dt><dd id=\"{id}-shown\">{} per {interval}</dd></div>\n\
         <div><dt>{} above it</dt><dd id=\"{id}-above\">{}</dd></div>\n\
         <div><dt>Requests above it, estimated</dt><dd id=\"{id}-permits\">{}</dd></div>\n</dl>\n\
         {chart}<p class=\"caption\">{subject} by rank, largest demand first; both scales are logarithmic</p>\n{}</figure>\n",
        key("accent"),
        key("strong dashed"),
        candidates.len().saturating_sub(1),
        grouped(chosen.rate.into()),
        if is_overall(limit) { "Intervals" } else { "Clients" },
        share(chosen.above, count),
        share(chosen.permits, permits),
        definition(limit),
    );
    let one_digit = |number: f64| (number * 10.0).round() / 10.0;
    let points = candidates.iter().map(|candidate| {
        (
            candidate.rate,
            candidate.above,
            candidate.permits,
            u8::from(candidate.is_approximate),
            one_digit(y(candidate.rate)),
            one_digit(x(candidate.above)),
        )
    });
    (html, Rates { interval: limit.interval.clone(), subject, count, permits, points: points.collect() })
}

/// Returns the definition of the numbers.
fn definition(limit: &LimitReport) -> String {
    let interval = Escaped(&limit.interval).to_string();
    let subject = if is_overall(limit) {
        "The demand of an interval is the sum of the permits that all requests needed in it.".to_owned()
    } else {
        let bucket = match limit.algorithm {
            "token_bucket" => {
                format!(" For {}, it is at least the most permits that were in use at once.", limit.algorithm)
            }
            _ => String::new(),
        };
        format!("The demand of a client is the most permits that its requests needed in one interval.{bucket}")
    };
    let drawn = if is_overall(limit) {
        "From 64 permits, the curve shows a demand as up to 6 % larger."
    } else {
        "The curve shows the first 100 ranks exactly, and a sample of the others."
    };
    format!(
        "<p class=\"help\">{subject} Intervals of {interval} follow one another without gaps, from 1970-01-01 UTC. Requests above a \
         rate are the permits beyond it in each interval, which are requests if each costs one permit. This approximates the \
         decisions about another rate: algorithms with other windows, bursts and rejected requests that cost nothing give other \
         numbers. <strong>Exact, from the replay of {rate} per {interval} ({algorithm}):</strong> {rejected} requests rejected, \
         {affected} clients affected. {drawn}</p>\n",
        rate = grouped(limit.rate.into()),
        algorithm = limit.algorithm,
        rejected = grouped(limit.rejected),
        affected = grouped(limit.affected as u64),
    )
}
