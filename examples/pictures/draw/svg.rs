//! Draws a timeline as an SVG: a row of dots for granted and for rejected requests, and a step line of the remaining
//! permits.

use tidegate_limit::Wait;

use super::timeline::{LENGTH, Request, Timeline};
use super::{RATE, Subject};

const WIDTH: u32 = 860;
const LEFT: f64 = 82.0;
const RIGHT: f64 = 846.0;

/// The vertical positions of the rows.
const REJECTED: f64 = 52.0;
const GRANTED: f64 = 76.0;
const SLOTS: f64 = 116.0;

/// The height of one permit.
const PERMIT: f64 = 16.0;

/// The picture has its own background, because a page can be light on a system with a dark theme.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif}.row{text-anchor:end}.tick{text-anchor:middle}.head{font-size:14px;font-weight:600}
.bad,.line{fill:none}.bad,.arrow{stroke-width:1.6}.line{stroke-width:2}.area{opacity:.15}.arrow{opacity:.6}
.window{stroke-dasharray:3 4}
.ground{fill:#fff}text{fill:#6e7781}.head{fill:#24292f}.good,.area{fill:#0969da}.line,.arrow{stroke:#0969da}
.bad{stroke:#cf222e}.rule{stroke:#d8dee4}.window{stroke:#6e7781}
@media(prefers-color-scheme:dark){.ground{fill:#0d1117}text{fill:#9198a1}.head{fill:#e6edf3}.good,.area{fill:#58a6ff}
.line,.arrow{stroke:#58a6ff}.bad{stroke:#ff7b72}.rule{stroke:#30363d}.window{stroke:#9198a1}}";

/// Draws the picture of one limit.
pub fn draw(subject: &Subject, timeline: &Timeline) -> String {
    let waits = subject.algorithm.has_time_slots();
    let top = if waits { SLOTS } else { GRANTED } + 28.0;
    let rate = u32::try_from(RATE).unwrap_or(u32::MAX);
    let zero = top + PERMIT * f64::from(rate);
    let mut svg = open(subject, timeline, zero + 34.0);
    svg += &axes(zero, rate, top);
    if let Some(distance) = subject.window {
        svg += &windows(distance, zero);
    }
    svg += &label(GRANTED, "granted");
    svg += &label(REJECTED, "rejected");
    svg += &label(top - 8.0 + PERMIT, subject.line_label);
    if waits {
        svg += &label(SLOTS, "forwarded");
        svg += &slots(timeline);
    }
    svg += &timeline.requests.iter().map(dot).collect::<String>();
    svg + &step_line(timeline, zero) + "</svg>\n"
}

fn open(subject: &Subject, timeline: &Timeline, height: f64) -> String {
    let (name, settings) = (subject.algorithm.name(), subject.settings);
    let (granted, all) = (timeline.granted(), timeline.requests.len());
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-labelledby=\"title desc\">\n\
         <title id=\"title\">{name}: {granted} of {all} requests are granted</title>\n\
         <desc id=\"desc\">rate: {RATE}, interval: 1m{settings}. {}</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n\
         <text class=\"head\" x=\"14\" y=\"24\">algorithm: {name}, rate: {RATE}, interval: 1m{settings}</text>\n\
         <text x=\"{RIGHT}\" y=\"24\" class=\"row\">{granted} of {all} granted</text>\n",
        describe(timeline)
    )
}

/// Describes the picture in text.
fn describe(timeline: &Timeline) -> String {
    let seconds = |granted: bool| {
        let times = timeline.requests.iter().filter(|request| request.decision.granted == granted);
        times.map(|request| (request.at / 1_000).to_string()).collect::<Vec<_>>().join(", ")
    };
    format!("Granted after {} seconds; rejected after {} seconds.", seconds(true), seconds(false))
}

fn x(at: u32) -> f64 {
    LEFT + (RIGHT - LEFT) * f64::from(at) / f64::from(LENGTH)
}

fn label(y: f64, text: &str) -> String {
    format!("<text class=\"row\" x=\"{}\" y=\"{}\">{text}</text>\n", LEFT - 22.0, y + 4.0)
}

fn axes(zero: f64, rate: u32, top: f64) -> String {
    let mut svg = String::new();
    for permits in (0..=rate).step_by(2) {
        let y = zero - PERMIT * f64::from(permits);
        svg += &format!("<path class=\"rule\" d=\"M{LEFT} {y}H{RIGHT}\"/>\n");
        svg += &format!("<text class=\"row\" x=\"{}\" y=\"{}\">{permits}</text>\n", LEFT - 6.0, y + 4.0);
    }
    for second in (0..LENGTH / 1_000).step_by(20) {
        let x = x(second * 1_000);
        svg += &format!("<path class=\"rule\" d=\"M{x:.1} {top}V{}\"/>", zero + 4.0);
        svg += &format!("<text class=\"tick\" x=\"{x:.1}\" y=\"{}\">{second} s</text>\n", zero + 20.0);
    }
    svg
}

/// Draws a line at the start of each window or segment.
fn windows(distance: u32, zero: f64) -> String {
    let step = usize::try_from(distance).unwrap_or(usize::MAX);
    let line = |at| format!("<path class=\"window\" d=\"M{:.1} {}V{zero}\"/>\n", x(at), REJECTED - 12.0);
    (0..LENGTH).step_by(step).map(line).collect()
}

fn dot(request: &Request) -> String {
    let (x, seconds) = (x(request.at), request.at / 1_000);
    match (request.decision.granted, request.decision.wait) {
        (true, _) => format!("<circle class=\"good\" cx=\"{x:.1}\" cy=\"{GRANTED}\" r=\"3.2\"/>\n"),
        (false, Wait::Millis(wait)) => format!(
            "<circle class=\"bad\" cx=\"{x:.1}\" cy=\"{REJECTED}\" r=\"2.8\">\
             <title>after {seconds} s: rejected, retry after {wait} ms</title></circle>\n"
        ),
        _ => format!("<circle class=\"bad\" cx=\"{x:.1}\" cy=\"{REJECTED}\" r=\"2.8\"/>\n"),
    }
}

/// Draws an arrow from each granted request to its time slot.
fn slots(timeline: &Timeline) -> String {
    let granted = timeline.requests.iter().filter(|request| request.decision.granted);
    let slot = |request: &Request| {
        let delay = u32::try_from(request.decision.delay).unwrap_or(u32::MAX);
        let (from, to) = (x(request.at), x(request.at.saturating_add(delay)));
        format!(
            "<path class=\"arrow\" d=\"M{from:.1} {GRANTED}L{to:.1} {SLOTS}\"/>\
             <path class=\"good\" d=\"M{to:.1} {SLOTS}l-3.5 -7h7z\"/>\n"
        )
    };
    granted.map(slot).collect()
}

/// Draws the remaining permits as a step line with an area below.
fn step_line(timeline: &Timeline, zero: f64) -> String {
    let y = |permits: u32| zero - PERMIT * f64::from(permits);
    let mut steps = String::new();
    for (at, permits) in &timeline.remaining {
        steps += &format!("H{:.1}V{}", x(*at), y(*permits));
    }
    steps += &format!("H{RIGHT}");
    let first = timeline.remaining.first().map_or(zero, |(_, permits)| y(*permits));
    format!(
        "<path class=\"area\" d=\"M{LEFT} {zero}V{first}{steps}V{zero}z\"/>\n\
         <path class=\"line\" d=\"M{LEFT} {first}{steps}\"/>\n"
    )
}
