//! The chart of the requests over time.

use super::chart::{Chart, SIZE, area, round_up, steps};
use super::rates::is_overall;
use super::text::{Escaped, grouped, short, to_float};
use crate::report::LimitReport;
use tidegate_config::Millis;
use tidegate_limit::clock::Timestamp;

/// The maximum number of steps of the chart.
const MAX_STEPS: usize = 300;

/// The number of steps to which slots are not joined if only the interval is longer.
const MIN_STEPS: usize = 24;

/// Returns the figure.
pub(super) fn figure(limit: &LimitReport) -> String {
    let series = &limit.series;
    let slots = series.requests.len();
    let for_interval = limit.interval_ms.div_ceil(series.step.max(1)).min((slots / MIN_STEPS) as u64);
    let joined = slots.div_ceil(MAX_STEPS).max(usize::try_from(for_interval).unwrap_or(1)).max(1);
    let width = series.step * joined as u64;
    let sums = |counts: &[u64]| -> Vec<u64> { counts.chunks(joined).map(|slots| slots.iter().sum()).collect() };
    let (requests, rejected) = (sums(&series.requests), sums(&series.rejected));
    let highest = |counts: &[u64]| counts.iter().copied().max().unwrap_or(0);

    let rate = f64::from(limit.rate) * to_float(width) / to_float(limit.interval_ms.max(1));
    let top = round_up(to_float(highest(&requests)));
    // A rate far above the requests would flatten them.
    let is_drawn = rate <= top * 4.0;
    let top = if is_drawn { top.max(round_up(rate)) } else { top };
    let y = |value: f64| SIZE - value / top * SIZE;
    let x = |step: usize| to_float(step as u64) / to_float(requests.len().max(1) as u64) * SIZE;
    let path =
        |counts: &[u64]| steps(counts.iter().enumerate().map(|(step, count)| (x(step), y(to_float(*count)))), SIZE);
    let (all, bad) = (path(&requests), path(&rejected));
    let mut drawing = format!(
        "<path class=\"track\" d=\"{}\"/><path class=\"line muted\" d=\"{all}\"/><path class=\"over\" d=\"{}\"/>\
         <path class=\"line bad\" d=\"{bad}\"/>",
        area(&all),
        area(&bad)
    );
    if is_drawn {
        drawing += &format!("<path class=\"line strong dashed\" d=\"M0 {0:.1}H{SIZE}\"/>", y(rate));
    }
    let vertical = [0.0, 0.5, 1.0].map(|share| (SIZE - share * SIZE, short(top * share)));
    let length = width * requests.len() as u64;
    let horizontal =
        [0_u32, 1, 2].map(|half| (SIZE / 2.0 * f64::from(half), time(series.start + length * u64::from(half) / 2)));

    let width = Escaped(&Millis::show(width)).to_string();
    let of = if is_overall(limit) { "limit" } else { "rate of one client" };
    let above = if is_drawn { "" } else { ", above the chart" };
    let even = if rate < 10.0 { format!("{rate:.2}") } else { format!("{rate:.0}") };
    format!(
        "<figure>\n<figcaption>\n<h3>Requests over time, in steps of {width}</h3>\n<ul class=\"legend\">\n\
         <li>{}<span>requests</span><span class=\"figures\">highest {} in {width}</span></li>\n\
         <li>{}<span>rejected</span><span class=\"figures\">highest {} in {width}</span></li>\n\
         <li>{}<span>{of}</span><span class=\"figures\">{} per {}: {even} in {width}{above}</span></li>\n\
         </ul>\n</figcaption>\n{}</figure>\n",
        key("muted"),
        grouped(highest(&requests)),
        key("bad"),
        grouped(highest(&rejected)),
        key("strong dashed"),
        grouped(limit.rate.into()),
        Escaped(&limit.interval),
        Chart { vertical: &vertical, horizontal: &horizontal, drawing: &drawing }
    )
}

/// Returns the key of a line.
pub(super) fn key(style: &str) -> String {
    format!(
        "<svg class=\"key\" viewBox=\"0 0 20 8\" aria-hidden=\"true\"><path class=\"line {style}\" d=\"M0 4H20\"/></svg>"
    )
}

/// Returns the day and the time in UTC. Narrow pages hide the day.
fn time(millis: u64) -> String {
    let text = Timestamp::from_millis(millis).to_rfc3339();
    let (day, time) = text.split_once('T').unwrap_or((&text, ""));
    format!("<tspan class=\"day\">{day} </tspan>{}", time.get(..8).unwrap_or(time))
}
